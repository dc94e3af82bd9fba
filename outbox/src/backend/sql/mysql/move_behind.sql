-- Copies deliveries behind the parked messages of their keys, all parameters being numbers that are written here.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state)
select consumer, lane, key_hash, seq, 1
from /*schema*/outbox_delivery
where consumer = /*consumer*/0 and lane = /*lane*/0 and seq in (/*numbers*/0) and key_hash is not null;
