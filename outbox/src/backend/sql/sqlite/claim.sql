-- The first of the lanes ?3 (a JSON array), in their order, that has something runnable and that nobody has leased: the
-- transaction already holds the file's write lock. What is parked counts when it has been due for ?2 microseconds.
select l.lane, 0 as backend,
       (select s.alone from /*schema*/outbox_suspect s where s.consumer = ?1 and s.lane = l.lane) as suspect
from json_each(?3) wanted
cross join /*schema*/outbox_lane l on l.consumer = ?1 and l.lane = wanted.value
where (select not paused from /*schema*/outbox_consumer where id = ?1)
  and (l.leased_until is null or l.leased_until <= cast(unixepoch('subsec') * 1000000 as integer)/*now*/)
  and (exists (select 1 from /*schema*/outbox_delivery d where d.consumer = ?1 and d.lane = l.lane)
   or exists (select 1 from /*schema*/outbox_parked p
              where p.consumer = ?1 and p.lane = l.lane
                and p.due_at <= cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?2))
limit 1;
