-- Where a batch of inbox marks ends, by the time of the last of the first ?3: behind the time ?1 up to ?2, and ?4 microseconds old.
select max(processed_at)
from (select processed_at from /*schema*/outbox_inbox
      where processed_at > ?1
        and processed_at <= min(?2, cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?4)
      order by processed_at limit ?3) batch;
