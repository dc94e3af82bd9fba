-- Removes deliveries: ?3 sequence numbers, a JSON array.
delete from /*schema*/outbox_delivery
where consumer = ?1 and lane = ?2 and seq in (select value from json_each(?3));
