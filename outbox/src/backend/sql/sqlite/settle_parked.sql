-- Removes a parked message.
delete from /*schema*/outbox_parked
where consumer = ?1 and lane = ?2 and key_hash = ?3 and seq = ?4 and attempts = ?5;
