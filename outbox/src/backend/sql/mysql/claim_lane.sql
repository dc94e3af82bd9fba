-- Locks one lane by its full primary key, which is exactly one row: ? consumer, lane. No row where somebody holds it or has leased it.
select l.lane, connection_id() as backend,
       (select s.alone from /*schema*/outbox_suspect s where s.consumer = l.consumer and s.lane = l.lane) as suspect
from /*schema*/outbox_lane l
where l.consumer = ? and l.lane = ? and (l.leased_until is null or l.leased_until <= utc_timestamp(6)/*now*/)
for update skip locked;
