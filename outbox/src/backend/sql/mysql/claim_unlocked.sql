-- The claim of a lane without its lock: the negative control that shows what the lock is for. Nothing is suspect.
select lane, connection_id() as backend, null as suspect
from /*schema*/outbox_lane
where consumer = ? and lane = ?;
