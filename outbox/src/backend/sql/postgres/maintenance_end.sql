-- The holder $1 has ended, by the error $2 or well.
update /*schema*/outbox_maintenance
set succeeded_at = case when $2::text is null then clock_timestamp() else succeeded_at end,
    failed_at = case when $2::text is null then failed_at else clock_timestamp() end,
    last_error = $2::text
where holder = $1;
