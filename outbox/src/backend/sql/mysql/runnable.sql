-- Which of these consumers (numbers with commas between) have something runnable; locks nothing.
select c.id
from /*schema*/outbox_consumer c
where find_in_set(c.id, ?) and not c.paused
  and ((select 1 from /*schema*/outbox_delivery d where d.consumer = c.id limit 1) = 1
    or (select 1
        from /*schema*/outbox_lane l
        where l.consumer = c.id
          and (select p.due_or_never from /*schema*/outbox_parked p force index (outbox_parked_due)
               where p.consumer = l.consumer and p.lane = l.lane
               order by p.due_or_never limit 1) <= utc_timestamp(6)/*now*/
        limit 1) = 1);
