-- The slots from ? to before ? that no publisher holds. What is missing is held by one that may have read the subscriptions
-- before they were committed.
select slot from /*schema*/outbox_order_slot where slot >= ? and slot < ? for update skip locked;
