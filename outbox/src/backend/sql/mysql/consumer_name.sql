-- Makes a name lead to the consumer that another one is the present name of, under the registry's lock: ? name, present name.
insert into /*schema*/outbox_consumer_name (name, consumer)
select ?, id from /*schema*/outbox_consumer where name = ?;
