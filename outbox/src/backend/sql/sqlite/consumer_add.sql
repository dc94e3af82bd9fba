-- Makes a consumer that is not there.
insert into /*schema*/outbox_consumer (id, name, lanes)
select (select coalesce(max(id), 0) + 1 from /*schema*/outbox_consumer), ?1, ?2
where not exists (select 1 from /*schema*/outbox_consumer where name = ?1);
