-- Gives a consumer another present name, under the registry's lock: ? new name, number, name until now.
update /*schema*/outbox_consumer set name = ? where id = ? and name = ?;
