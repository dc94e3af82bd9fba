-- Nothing up to the number ? is in flight any more, twice.
update /*schema*/outbox_watermark set seq = ? where seq < ?;
