-- Unfinished messages of these consumers, counted up to $2.
select count(*)
from (
    select 1 from /*schema*/outbox_delivery where consumer = any($1::smallint[])
    union all
    select 1 from /*schema*/outbox_parked where consumer = any($1::smallint[])
    limit $2
) unfinished;
