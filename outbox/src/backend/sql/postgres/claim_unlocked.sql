-- The claim without its lock: the negative control that shows what the lock is for. Nothing is suspect, whatever $3.
select wanted.lane, pg_backend_pid() as backend, (extract(epoch from now()) * 1000000)::bigint as began, null::int as suspect
from unnest($2::smallint[]) wanted(lane)
where $3::boolean is not null
  and ((select 1 from /*schema*/outbox_delivery d
        where d.consumer = $1 and d.lane = wanted.lane
        order by d.seq limit 1) = 1
    or (select 1 from /*schema*/outbox_parked p
        where p.consumer = $1 and p.lane = wanted.lane and p.due_at <= now()/*now*/ - $4::bigint * interval '1 microsecond'
        order by p.due_at limit 1) = 1)
limit 1;
