-- All that an idle process has to say and to ask, in one statement. With $6 it says that it is alive, whether or not it
-- was known, and asks which workers may not be: those that have been silent for $6 microseconds, and those of its host; and which of
-- its consumers are gone.
-- With $7 it asks which of its consumers $5 have something runnable. Locks nothing but its own row.
with beat as (
    insert into /*schema*/outbox_worker (id, host, pid, version, consumers, pooled)
    select $1, $2, $3, $4, $5::smallint[], $8::boolean
    where $6::bigint is not null
    on conflict (id) do update set heartbeat_at = now()
)
select c.id as consumer, null as id, null as host, null::bigint as pid, null::boolean as silent, false as gone
from unnest($5::smallint[]) c(id)
where $7::boolean
  and (select not paused from /*schema*/outbox_consumer where id = c.id)
  and ((select 1 from /*schema*/outbox_delivery d where d.consumer = c.id limit 1) = 1
   or (select 1
       from /*schema*/outbox_lane l
       where l.consumer = c.id
         and (select 1 from /*schema*/outbox_parked p
              where p.consumer = l.consumer and p.lane = l.lane and p.due_at <= now()/*now*/
              order by p.due_at limit 1) = 1
       limit 1) = 1)
union all
select null, w.id, w.host, w.pid, w.silent, false
from (select id, host, pid, heartbeat_at < now() - $6::bigint * interval '1 microsecond' as silent
      from /*schema*/outbox_worker
      where id <> $1) w
where w.silent or w.silent is not null and w.host = $2
union all
select c.id, null, null, null, null, true
from unnest($5::smallint[]) c(id)
where $6::bigint is not null and not exists (select 1 from /*schema*/outbox_consumer where id = c.id);
