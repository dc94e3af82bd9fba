-- Removes the messages behind the number $1 up to $2 that are old enough, and that no consumer can get any more: $3 microseconds, or
-- $4 where nobody was subscribed; null = never. $5 = whoever may still get them.
--
-- The registry's lock is held, so nobody begins to look at history. All else that may get a message has had a row for it since its
-- publish, in one table or the other, and one statement has one snapshot: no move between the two can hide it. A type that
-- somebody still looks through stays as it is. Scalar subqueries, since those cannot become joins that read a table as a whole.
delete from /*schema*/outbox_message m
where m.seq > $1 and m.seq <= $2
  and m.created_at < now()/*now*/ - interval '1 microsecond' *
      case when (select 1 from /*schema*/outbox_unrouted u
                 where u.event_type = m.event_type and u.seq = m.seq limit 1) is null
           then $3::bigint else $4::bigint end
  and ($5
       or (select 1 from /*schema*/outbox_backfill b where b.event_type = m.event_type limit 1) is null
      and (select 1 from /*schema*/outbox_backfill b where b.event_type = '*' limit 1) is null
      and (select 1 from /*schema*/outbox_consumer c
           where (select 1 from /*schema*/outbox_delivery d
                  where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq limit 1) is not null
              or (select 1 from /*schema*/outbox_parked p
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = m.key_hash
                    and p.seq = m.seq limit 1) is not null
              or (select 1 from /*schema*/outbox_parked p
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = -m.seq
                    and p.seq = m.seq limit 1) is not null
           limit 1) is null)
returning m.seq, m.event_type,
          (select 1 from /*schema*/outbox_unrouted u
           where u.event_type = m.event_type and u.seq = m.seq limit 1) is not null as unrouted;
