-- Unfinished messages of these consumers (a JSON array), counted up to ?2.
select count(*)
from (
    select 1 from /*schema*/outbox_delivery where consumer in (select value from json_each(?1))
    union all
    select 1 from /*schema*/outbox_parked where consumer in (select value from json_each(?1))
    limit ?2
);
