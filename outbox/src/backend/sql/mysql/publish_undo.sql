-- Takes back a publish that failed half-way.
rollback to savepoint outbox_publish;
