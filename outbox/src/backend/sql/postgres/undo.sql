-- Takes back what the handler did; the savepoint stays.
rollback to savepoint outbox_handler;
