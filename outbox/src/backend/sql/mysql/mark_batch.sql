-- Where a batch of inbox marks ends, by the time of the last, in microseconds since 1970: ? behind which time, up to which, how many
-- microseconds old, of the first so many.
select timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', max(processed_at)) as last_time
from (select processed_at from /*schema*/outbox_inbox force index (outbox_inbox_old)
      where processed_at > timestamp '1970-01-01 00:00:00' + interval ? microsecond
        and processed_at <= least(timestamp '1970-01-01 00:00:00' + interval ? microsecond,
                                  utc_timestamp(6)/*now*/ - interval ? microsecond)
      order by processed_at limit ?) batch;
