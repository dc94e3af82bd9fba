-- Makes the consumer's lanes that are not there: ? name. The slots are numbers to count by.
insert into /*schema*/outbox_lane (consumer, lane)
select c.id, n.slot
from /*schema*/outbox_consumer c straight_join /*schema*/outbox_order_slot n on n.slot < c.lanes
where c.name = ?
  and not exists (select 1 from /*schema*/outbox_lane l where l.consumer = c.id and l.lane = n.slot);
