-- Copies deliveries, ?3 sequence numbers as a JSON array, behind the parked messages of their keys.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state)
select consumer, lane, key_hash, seq, 1
from /*schema*/outbox_delivery
where consumer = ?1 and lane = ?2 and seq in (select value from json_each(?3)) and key_hash is not null;
