-- Tells all who listen on the channel $1 to look for work, if a consumer has something runnable that is not named in $2, as in
-- ',1,2,'. A text and no array, with which PostgreSQL plans anew at each execution; and this one comes often.
select pg_notify($1, '')
where exists (
    select 1
    from /*schema*/outbox_consumer c
    where not c.paused
      and strpos($2, ',' || c.id || ',') = 0
      and ((select 1 from /*schema*/outbox_delivery d where d.consumer = c.id limit 1) = 1
       or (select 1
           from /*schema*/outbox_lane l
           where l.consumer = c.id
             and (select 1 from /*schema*/outbox_parked p
                  where p.consumer = l.consumer and p.lane = l.lane and p.due_at <= now()/*now*/
                  order by p.due_at limit 1) = 1
           limit 1) = 1)
);
