-- Takes back what the handler did; the savepoint stays, and every lock.
rollback to savepoint outbox_handler;
