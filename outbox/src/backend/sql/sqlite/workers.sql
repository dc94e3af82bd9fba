-- Workers that are not this one and may be dead: of its host, or silent for ?3 microseconds.
select id, host, pid, silent
from (select id, host, pid,
             heartbeat_at < cast(unixepoch('subsec') * 1000000 as integer) - ?3 as silent
      from /*schema*/outbox_worker
      where id <> ?1)
where silent or host = ?2;
