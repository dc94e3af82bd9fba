-- ?1 is the process that prunes from now on; the row is locked.
update /*schema*/outbox_maintenance set holder = ?1, started_at = cast(unixepoch('subsec') * 1000000 as integer);
