-- The consumer that a name leads to.
select c.id, c.lanes, c.name, c.first_name
from /*schema*/outbox_consumer_name n join /*schema*/outbox_consumer c on c.id = n.consumer
where n.name = $1;
