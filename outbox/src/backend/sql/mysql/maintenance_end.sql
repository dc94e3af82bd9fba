-- The holder has ended: ? the error, three times, and the holder.
update /*schema*/outbox_maintenance
set succeeded_at = case when ? is null then utc_timestamp(6) else succeeded_at end,
    failed_at = case when ? is null then failed_at else utc_timestamp(6) end,
    last_error = ?
where holder = ?;
