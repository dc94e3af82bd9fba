-- Those of some slots that no publisher holds.
select slot from /*schema*/outbox_order_slot where slot in (/*numbers*/0) for update skip locked;
