-- Where a batch of messages ends: the first number, the last, how many. Null where there is none.
select max(seq) as last_seq, count(*) as messages
from (select seq from /*schema*/outbox_message where seq >= ?1 and seq <= ?2 order by seq limit ?3) batch;
