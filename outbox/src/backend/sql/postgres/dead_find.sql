-- Dead messages: $1 consumer or null, $2 event type or null, $3 message id or null, $4 part of the error or null,
-- after consumer $5 and seq $6, at most $7. In the order of their index, with nothing joined before the limit: whatever the
-- planner knows of the tables, it stops there.
select d.consumer, d.lane, d.key_hash, d.seq, d.state, d.attempts, d.last_error, d.name, m.id, m.event_type
from (select p.consumer, p.lane, p.key_hash, p.seq, p.state, p.attempts, p.last_error,
             (select c.name from /*schema*/outbox_consumer c where c.id = p.consumer) as name
      from /*schema*/outbox_parked p
      where p.state in (2, 3, 6)
        and (p.consumer, p.seq) > ($5, $6)
        and (select 1 from /*schema*/outbox_consumer c where c.id = p.consumer) is not null
        and ($1::text is null or p.consumer = (select n.consumer from /*schema*/outbox_consumer_name n where n.name = $1))
        and ($2::text is null or (select m.event_type from /*schema*/outbox_message m where m.seq = p.seq) = $2)
        and ($3::text is null or (select m.id from /*schema*/outbox_message m where m.seq = p.seq) = $3)
        and ($4::text is null or position($4 in p.last_error) > 0)
      order by p.consumer, p.seq
      limit $7) d
left join lateral (select m.id, m.event_type from /*schema*/outbox_message m where m.seq = d.seq limit 1) m on true
order by d.consumer, d.seq;
