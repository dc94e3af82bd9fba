-- Removes a message that has been dead for so many microseconds: ? consumer, lane, key hash, seq, these.
delete from /*schema*/outbox_parked
where consumer = ? and lane = ? and key_hash = ? and seq = ? and state in (2, 3, 6)
  and dead_at < utc_timestamp(6)/*now*/ - interval ? microsecond;
