-- The messages behind a number up to another that are old enough, and that no consumer can get any more: ? behind, up to, the age in
-- microseconds, that where nobody was subscribed (null = never), whether whoever may still get them.
--
-- The registry's lock is held, so nobody begins to look at history. All else that may get a message has had a row for it since its
-- publish, in one table or the other, and one statement has one snapshot: no move between the two can hide it. So what is found
-- here stays so until the lock ends. A type that somebody still looks through stays as it is. This locks nothing: in a DELETE the
-- same subqueries would wait for every handler.
select m.seq, m.id, m.event_type, u.seq is not null as unrouted
from /*schema*/outbox_message m force index (primary)
left join /*schema*/outbox_unrouted u on u.event_type = m.event_type and u.seq = m.seq
where m.seq > ? and m.seq <= ?
  and m.created_at < utc_timestamp(6)/*now*/ - interval (case when u.seq is null then ? else ? end) microsecond
  and (?
       or (select 1 from /*schema*/outbox_backfill b where b.event_type = m.event_type limit 1) is null
      and (select 1 from /*schema*/outbox_backfill b where b.event_type = '*' limit 1) is null
      and (select 1 from /*schema*/outbox_consumer c
           where (select 1 from /*schema*/outbox_delivery d
                  where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq limit 1) is not null
              or (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = m.key_hash
                    and p.seq = m.seq limit 1) is not null
              or (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = -m.seq
                    and p.seq = m.seq limit 1) is not null
           limit 1) is null);
