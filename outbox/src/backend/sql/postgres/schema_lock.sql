-- Keeps other migrating processes out until the transaction ends; the text is the name of this schema's table,
-- so two outboxes of one database do not wait for each other.
select pg_advisory_xact_lock(hashtextextended('/*schema*/outbox_migration', 0));
