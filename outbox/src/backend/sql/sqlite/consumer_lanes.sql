-- Makes the consumer's lanes that are not there.
insert into /*schema*/outbox_lane (consumer, lane)
with recursive lanes(consumer, lane, after) as (
    select id, 0, lanes from /*schema*/outbox_consumer where name = ?1
    union all
    select consumer, lane + 1, after from lanes where lane + 1 < after
)
select consumer, lane from lanes where true
on conflict do nothing;
