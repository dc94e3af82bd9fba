-- Whether the table of migrations exists.
select count(*) > 0 from pragma_table_info('/*prefix*/outbox_migration');
