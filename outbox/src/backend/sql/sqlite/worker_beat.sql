-- Says that this process is alive, whether or not it was known.
insert into /*schema*/outbox_worker (id, host, pid, version, consumers, pooled)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (id) do update set heartbeat_at = cast(unixepoch('subsec') * 1000000 as integer);
