-- The holder ?1 has ended, by the error ?2 or well.
update /*schema*/outbox_maintenance
set succeeded_at = case when ?2 is null then cast(unixepoch('subsec') * 1000000 as integer) else succeeded_at end,
    failed_at = case when ?2 is null then failed_at else cast(unixepoch('subsec') * 1000000 as integer) end,
    last_error = ?2
where holder = ?1;
