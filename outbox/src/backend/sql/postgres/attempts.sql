-- The recorded attempts of a message, for the consumer of a name, oldest first.
select a.number, a.error, a.worker, a.duration_us, a.failed_at
from /*schema*/outbox_message m
join /*schema*/outbox_attempt a on a.seq = m.seq
join /*schema*/outbox_consumer c on c.id = a.consumer
where m.id = $1 and c.name = $2
order by a.number;
