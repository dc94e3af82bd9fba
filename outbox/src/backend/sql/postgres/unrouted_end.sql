-- Where a batch of what nobody has got ends: type, how many. Null where there is none, or nobody new who gets it.
select max(seq)
from (select seq from /*schema*/outbox_unrouted
      where event_type = $1
        and exists (select 1 from /*schema*/outbox_subscription where event_type = $1 and not ready and unrouted)
      order by seq limit $2) batch;
