-- After a handler. The release fails where the handler left our transaction, or a deadlock took it away.
release savepoint outbox_handler;
