-- Where a batch of inbox marks ends, by the time of the last of the first $3, in microseconds since 1970: behind the time $1 up to $2,
-- and $4 microseconds old.
select (extract(epoch from max(processed_at)) * 1000000)::bigint
from (select processed_at from /*schema*/outbox_inbox
      where processed_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond'
        and processed_at <= least(timestamptz 'epoch' + $2::bigint * interval '1 microsecond',
                                  now()/*now*/ - $4::bigint * interval '1 microsecond')
      order by processed_at limit $3) batch;
