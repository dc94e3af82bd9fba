-- Takes a worker for dead, unless somebody else does.
select id from /*schema*/outbox_worker where id = ? for update skip locked;
