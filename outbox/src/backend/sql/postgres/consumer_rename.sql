-- Gives a consumer another present name, under the registry's lock.
update /*schema*/outbox_consumer set name = $3 where id = $1 and name = $2;
