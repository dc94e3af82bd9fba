-- What a new subscription has got is routed now: type, the first number, the last, since when it was published.
delete from /*schema*/outbox_unrouted
where event_type = ?1 and seq >= ?2 and seq <= ?3
  and (?4 is null or (select m.created_at from /*schema*/outbox_message m where m.seq = /*prefix*/outbox_unrouted.seq) >= ?4);
