-- What the handlers have done so far stands: the savepoint begins anew. The release fails where a handler left or broke our
-- transaction.
release savepoint outbox_handler;
savepoint outbox_handler;
