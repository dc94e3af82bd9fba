-- The order slot of a message that another client publishes, locked until the transaction ends. Where its row is missing the
-- message has no slot, which is an error when it is stored.
set @outbox_0_slot = (select @outbox_0_slot from /*schema*/outbox_order_slot where slot = /*numbers*/0 for update);
