-- The gate of a message that another client publishes and that has no order, held with others. As for a slot.
set @outbox_0_slot = (select @outbox_0_slot from /*schema*/outbox_order_slot where slot = /*numbers*/0 lock in share mode);
