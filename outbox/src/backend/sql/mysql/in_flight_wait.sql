-- Waits for a slot in the row of those who wait for it: one that is never free for a moment is had all the same.
select slot from /*schema*/outbox_order_slot where slot = ? for update;
