-- Unfinished messages of these consumers (numbers with commas between), counted up to a limit: ? consumers and limit, both
-- again, limit. A limit for each part, since one for both is looked at when all rows are there.
select count(*)
from (
    (select d.seq from /*schema*/outbox_consumer c straight_join /*schema*/outbox_delivery d on d.consumer = c.id
     where find_in_set(c.id, ?) limit ?)
    union all
    (select p.seq from /*schema*/outbox_consumer c straight_join /*schema*/outbox_parked p on p.consumer = c.id
     where find_in_set(c.id, ?) limit ?)
    limit ?
) unfinished;
