-- Makes the row that says who prunes where it is missing, as after a restore of the tables without what is in them.
insert into /*schema*/outbox_maintenance (one)
select 1 where not exists (select 1 from /*schema*/outbox_maintenance);
