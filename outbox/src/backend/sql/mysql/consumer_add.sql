-- Makes a consumer, under the registry's lock: ? name, lanes.
insert into /*schema*/outbox_consumer (id, name, lanes)
select coalesce(max(id), 0) + 1, ?, ? from /*schema*/outbox_consumer;
