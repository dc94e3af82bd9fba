-- Before a publish: a savepoint, which cannot be released where a deadlock or an implicit commit has left no transaction
-- that a message could be part of.
savepoint outbox_publish;
release savepoint outbox_publish;
