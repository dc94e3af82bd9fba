-- Finds the table of migrations: an error says that there is none.
select 1 from /*schema*/outbox_migration limit 0;
