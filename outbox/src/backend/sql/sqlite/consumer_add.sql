-- Makes a consumer, under the registry's lock.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes)
select coalesce(max(id), 0) + 1, ?1, ?1, ?2 from /*schema*/outbox_consumer;
