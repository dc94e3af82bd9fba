-- What the handlers have done so far stands: the savepoint begins anew. The release fails where a handler left our transaction,
-- or a deadlock took it away.
release savepoint outbox_handler;
savepoint outbox_handler;
