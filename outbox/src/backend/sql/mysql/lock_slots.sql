-- Locks the order slots of a publish until the transaction ends: the full primary key, sorted, so exactly these rows.
select slot from /*schema*/outbox_order_slot where slot in (/*numbers*/0) order by slot for update;
