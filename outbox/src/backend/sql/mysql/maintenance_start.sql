-- ? is the process that prunes from now on; the row is locked.
update /*schema*/outbox_maintenance set holder = ?, started_at = utc_timestamp(6);
