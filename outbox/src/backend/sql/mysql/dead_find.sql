-- Dead messages of a consumer, a part for each state, so that each reads its index from where it begins: three times ? consumer
-- and seq after which; then, each twice, event type or null, message id or null, part of the error or null; at most so many.
-- And once more, of all.
(select p.consumer, p.lane, p.key_hash, p.seq, p.state, p.attempts, p.last_error, m.id, m.event_type
 from /*schema*/outbox_parked p force index (outbox_parked_dead)
 left join /*schema*/outbox_message m on m.seq = p.seq
 where p.consumer = ? and p.state = 2 and p.seq > ?
   and (? is null or m.event_type = ?) and (? is null or m.id = ?) and (? is null or locate(?, p.last_error) > 0)
 order by p.seq limit ?)
union all
(select p.consumer, p.lane, p.key_hash, p.seq, p.state, p.attempts, p.last_error, m.id, m.event_type
 from /*schema*/outbox_parked p force index (outbox_parked_dead)
 left join /*schema*/outbox_message m on m.seq = p.seq
 where p.consumer = ? and p.state = 3 and p.seq > ?
   and (? is null or m.event_type = ?) and (? is null or m.id = ?) and (? is null or locate(?, p.last_error) > 0)
 order by p.seq limit ?)
union all
(select p.consumer, p.lane, p.key_hash, p.seq, p.state, p.attempts, p.last_error, m.id, m.event_type
 from /*schema*/outbox_parked p force index (outbox_parked_dead)
 left join /*schema*/outbox_message m on m.seq = p.seq
 where p.consumer = ? and p.state = 6 and p.seq > ?
   and (? is null or m.event_type = ?) and (? is null or m.id = ?) and (? is null or locate(?, p.last_error) > 0)
 order by p.seq limit ?)
order by seq
limit ?;
