-- Where a batch of messages ends: behind the number ?1, up to ?2, of the first ?3; the last that is ?4 microseconds old, or whatever
-- its age where that is null.
select max(seq) filter (where ?4 is null or created_at < cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?4)
from (select seq, created_at from /*schema*/outbox_message where seq > ?1 and seq <= ?2 order by seq limit ?3) batch;
