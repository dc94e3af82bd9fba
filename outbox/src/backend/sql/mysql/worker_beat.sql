-- Says that this process is alive, whether or not it was known: ? id, host, pid, version, numbers of consumers with commas
-- between, whether there is a pooler.
insert into /*schema*/outbox_worker (id, host, pid, version, consumers, pooled)
values (?, ?, ?, ?, ?, ?)
on duplicate key update heartbeat_at = utc_timestamp(6);
