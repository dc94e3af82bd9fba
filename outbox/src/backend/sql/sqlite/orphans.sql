-- Consumers that have messages waiting and that no living process has a handler for; ?1 = those that one has, a JSON array.
select c.name
from /*schema*/outbox_consumer c
where c.id not in (select value from json_each(?1))
  and not exists (select 1 from /*schema*/outbox_worker w cross join json_each(w.consumers) theirs where theirs.value = c.id)
  and exists (select 1 from /*schema*/outbox_delivery d where d.consumer = c.id)
order by c.name;
