-- Whether a message is handled, or claimed by somebody and how often: ? by whom, consumer, id. As it is now, however old the
-- snapshot of the transaction is.
select claimed_by is null as handled, coalesce(claimed_by = ?, false) as owned, coalesce(attempts, 0) as attempts
from /*schema*/outbox_inbox
where consumer = ? and message_id = ?
lock in share mode;
