-- The newest migration that ran.
select max(version) from /*schema*/outbox_migration;
