-- Nothing up to the number $1 is in flight any more.
update /*schema*/outbox_watermark set seq = $1 where seq < $1;
