-- Takes a worker for dead: the lanes of its consumers are suspect. 0 where somebody else did.
with dead as (
    delete from /*schema*/outbox_worker where id = $1 returning consumers
), lanes as (
    insert into /*schema*/outbox_suspect (consumer, lane)
    select l.consumer, l.lane from dead join /*schema*/outbox_lane l on l.consumer = any(dead.consumers)
    on conflict do nothing
)
select count(*) from dead;
