-- Consumers that have messages waiting and that no living process has a handler for; $1 = those that one has.
select c.name
from /*schema*/outbox_consumer c
where c.id <> all($1::smallint[])
  and not exists (select 1 from /*schema*/outbox_worker w where c.id = any(w.consumers))
  and (select 1 from /*schema*/outbox_delivery d where d.consumer = c.id limit 1) = 1
order by c.name;
