-- Locks the first of the lanes $2, in their order, that has something runnable and that nobody holds or has
-- leased; $3 = suspect ones too; what is parked counts when it has been due for $4 microseconds.
--
-- One LATERAL a lane with a LIMIT of its own, which the planner cannot flatten into a scan; SKIP LOCKED inside it, so
-- that the outer LIMIT stops at the first lane that was got. now(), since a volatile clock is no index condition.
select held.lane, pg_backend_pid() as backend, (extract(epoch from now()) * 1000000)::bigint as began,
       (select s.alone from /*schema*/outbox_suspect s where s.consumer = $1 and s.lane = held.lane) as suspect
from unnest($2::smallint[]) wanted(lane)
cross join lateral (
    select l.lane
    from /*schema*/outbox_lane l
    where l.consumer = $1
      and l.lane = wanted.lane
      and (l.leased_until is null or l.leased_until <= now()/*now*/)
      and ($3::boolean or not exists (select 1 from /*schema*/outbox_suspect s where s.consumer = $1 and s.lane = wanted.lane))
      and ((select 1 from /*schema*/outbox_delivery d
            where d.consumer = $1 and d.lane = wanted.lane
            order by d.seq limit 1) = 1
        or (select 1 from /*schema*/outbox_parked p
            where p.consumer = $1 and p.lane = wanted.lane and p.due_at <= now()/*now*/ - $4::bigint * interval '1 microsecond'
            order by p.due_at limit 1) = 1)
    limit 1
    for update skip locked
) held
where (select not paused from /*schema*/outbox_consumer where id = $1)
limit 1;
