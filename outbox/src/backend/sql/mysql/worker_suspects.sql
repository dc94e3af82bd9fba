-- The lanes of a dead worker's consumers are suspect: ? id. One that is suspect already stays so.
insert into /*schema*/outbox_suspect (consumer, lane)
select l.consumer, l.lane
from /*schema*/outbox_worker w straight_join /*schema*/outbox_lane l on find_in_set(l.consumer, w.consumers)
where w.id = ?
on duplicate key update lane = l.lane;
