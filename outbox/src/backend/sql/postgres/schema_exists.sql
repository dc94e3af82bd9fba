-- Whether the table of migrations exists.
select to_regclass('/*schema*/outbox_migration') is not null;
