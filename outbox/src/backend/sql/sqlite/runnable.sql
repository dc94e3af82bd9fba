-- Which of these consumers (a JSON array) have something runnable; locks nothing.
select c.value
from json_each(?1) c
where (select not paused from /*schema*/outbox_consumer where id = c.value)
  and (exists (select 1 from /*schema*/outbox_delivery d where d.consumer = c.value)
   or exists (select 1 from /*schema*/outbox_lane l cross join /*schema*/outbox_parked p
              where l.consumer = c.value and p.consumer = l.consumer and p.lane = l.lane
                and p.due_at <= cast(unixepoch('subsec') * 1000000 as integer)/*now*/));
