-- The lanes of a consumer that have something runnable and that nobody has leased: ? consumer, whether suspect ones too, and for how many microseconds
-- what is parked must have been due. Locks nothing: a lock that is taken together with a search is taken on more rows than it
-- returns. Scalar subqueries, which no plan turns into scans; what is first in an index is compared outside of them, since a
-- range beside columns of another table is none.
select l.lane
from /*schema*/outbox_lane l
where l.consumer = ?
  and (l.leased_until is null or l.leased_until <= utc_timestamp(6)/*now*/)
  and (select c.paused from /*schema*/outbox_consumer c where c.id = l.consumer) = 0
  and (? or (select 1 from /*schema*/outbox_suspect s where s.consumer = l.consumer and s.lane = l.lane) is null)
  and ((select 1 from /*schema*/outbox_delivery d where d.consumer = l.consumer and d.lane = l.lane limit 1) = 1
    or (select p.due_or_never from /*schema*/outbox_parked p force index (outbox_parked_due)
        where p.consumer = l.consumer and p.lane = l.lane
        order by p.due_or_never limit 1) <= utc_timestamp(6)/*now*/ - interval ? microsecond);
