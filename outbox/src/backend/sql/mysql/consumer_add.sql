-- Makes a consumer, under the registry's lock: ? name, name, lanes.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes)
select coalesce(max(id), 0) + 1, ?, ?, ? from /*schema*/outbox_consumer;
