-- The next numbers that a subscription has to look through: type, consumer.
select first_seq, last_seq, since
from /*schema*/outbox_backfill
where event_type = ?1 and consumer = ?2
order by first_seq
limit 1;
