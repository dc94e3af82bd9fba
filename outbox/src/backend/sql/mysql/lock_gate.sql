-- What holds nothing ordered holds a gate instead, with others, so that a registration can wait for it too.
select slot from /*schema*/outbox_order_slot where slot = /*numbers*/0 lock in share mode;
