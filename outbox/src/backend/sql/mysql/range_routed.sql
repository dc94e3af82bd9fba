-- What a new subscription has got is routed now: type, the first number, the last, since when it was published, and that again.
delete from /*schema*/outbox_unrouted
where event_type = ? and seq >= ? and seq <= ?
  and (? is null or (select m.created_at from /*schema*/outbox_message m where m.seq = /*prefix*/outbox_unrouted.seq) >= ?);
