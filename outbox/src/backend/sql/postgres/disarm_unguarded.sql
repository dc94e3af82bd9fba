-- disarm without its guard row: the negative control.
release savepoint outbox_handler;
