-- Lets other migrating processes in: ? as for schema_lock.
select release_lock(concat('outbox_migration ', sha1(?)));
