-- The recorded attempts of a message, for the consumer of a name, oldest first.
select a.number, a.error, a.worker, a.duration_us, a.failed_at
from /*schema*/outbox_message m
join /*schema*/outbox_attempt a on a.seq = m.seq
join /*schema*/outbox_consumer_name n on n.consumer = a.consumer
where m.id = ?1 and n.name = ?2
order by a.number;
