-- After a handler. The release fails where the handler left our transaction.
release savepoint outbox_handler;
