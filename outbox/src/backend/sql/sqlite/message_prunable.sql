-- The messages behind the number ?1 up to ?2 that are old enough, and that no consumer can get any more: ?3 microseconds, or ?4 where
-- nobody was subscribed; null = never. ?5 = whoever may still get them. The transaction holds the file's write lock, so what is found
-- here stays so. A type that somebody still looks through stays as it is.
select m.seq, m.event_type, u.seq is not null as unrouted
from /*schema*/outbox_message m
left join /*schema*/outbox_unrouted u on u.event_type = m.event_type and u.seq = m.seq
where m.seq > ?1 and m.seq <= ?2
  and m.created_at < cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - iif(u.seq is null, ?3, ?4)
  and (?5
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
           limit 1) is null);
