-- arm without its guard row: the negative control.
savepoint outbox_handler;
