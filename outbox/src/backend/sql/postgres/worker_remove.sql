-- A process that ends in order.
delete from /*schema*/outbox_worker where id = $1;
