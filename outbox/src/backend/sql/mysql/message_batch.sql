-- Where a batch of messages ends: ? the age in microseconds, or null, twice; behind a number, up to a number, of the first so many.
-- The last that is so old, or whatever its age.
select max(case when ? is null or created_at < utc_timestamp(6)/*now*/ - interval ? microsecond then seq end) as last_seq
from (select seq, created_at from /*schema*/outbox_message force index (primary)
      where seq > ? and seq <= ? order by seq limit ?) batch;
