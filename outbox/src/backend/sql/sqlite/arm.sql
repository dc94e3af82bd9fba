-- Before a handler: the savepoint that takes its work back.
savepoint outbox_handler;
