-- What may be in flight: the numbers behind the watermark that no committed message has, as ranges; the last one is that of all
-- behind the newest.
select first_seq, last_seq
from (
    select coalesce(lag(m.seq) over (order by m.seq), w.seq) + 1 as first_seq, m.seq - 1 as last_seq
    from /*schema*/outbox_watermark w straight_join /*schema*/outbox_message m on m.seq > w.seq
) gap
where first_seq <= last_seq
union all
select greatest(w.seq, coalesce((select seq from /*schema*/outbox_message order by seq desc limit 1), 0)) + 1, 9223372036854775807
from /*schema*/outbox_watermark w;
