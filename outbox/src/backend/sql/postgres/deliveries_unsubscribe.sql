-- Removes deliveries of a type, or of all for *, among a run of a lane, under its lock: $1 consumer, $2 lane, $3 behind which, $4 last, $5 type.
delete from /*schema*/outbox_delivery d
where d.consumer = $1 and d.lane = $2 and d.seq > $3 and d.seq <= $4
  and ($5 = '*' or (select m.event_type from /*schema*/outbox_message m where m.seq = d.seq) = $5);
