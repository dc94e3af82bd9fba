-- Consumers that have messages waiting and that no living process has a handler for: ? those that one has, numbers with commas
-- between.
select c.name
from /*schema*/outbox_consumer c
where not find_in_set(c.id, ?)
  and not exists (select 1 from /*schema*/outbox_worker w where find_in_set(c.id, w.consumers))
  and (select 1 from /*schema*/outbox_delivery d where d.consumer = c.id limit 1) = 1
order by c.name;
