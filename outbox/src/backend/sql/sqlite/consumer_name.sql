-- Makes a name lead to the consumer that ?2 is the present name of, under the registry's lock.
insert into /*schema*/outbox_consumer_name (name, consumer)
select ?1, id from /*schema*/outbox_consumer where name = ?2;
