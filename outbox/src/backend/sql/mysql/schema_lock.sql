-- Keeps other migrating processes out, beyond the commits that MySQL makes: ? the name of this schema's table, and how
-- many seconds to wait. 1 once the lock is ours.
select get_lock(concat('outbox_migration ', sha1(?)), ?);
