-- Workers that are not this one and may be dead: ? microseconds for which one may be silent, id, host.
select id, host, pid, silent
from (select id, host, pid, heartbeat_at < utc_timestamp(6) - interval ? microsecond as silent
      from /*schema*/outbox_worker
      where id <> ?) others
where silent or host = ?;
