-- Who has leased a lane, and whether others keep away now; the transaction already holds the file's write lock.
select leased_by, coalesce(leased_until > cast(unixepoch('subsec') * 1000000 as integer)/*now*/, 0) as leased
from /*schema*/outbox_lane
where consumer = ?1 and lane = ?2;
