-- Removes deliveries, all parameters being numbers that are written here.
delete from /*schema*/outbox_delivery where consumer = /*consumer*/0 and lane = /*lane*/0 and seq in (/*numbers*/0);
