-- Removes a consumer's recorded attempts of removed messages: ? consumer.
--
-- As a join that begins with the list: a condition on a list may be answered by reading the whole of a small table, or all of a
-- consumer's rows, and so by waiting for rows that others have just written: a deadlock that those may lose. Without an alias, which
-- such a DELETE looks for in the session's database, and there may be none.
delete /*schema*/outbox_attempt from (/*each union all*/select /*number*/0 as seq/*end*/) gone
straight_join /*schema*/outbox_attempt force index (primary)
    on /*schema*/outbox_attempt.consumer = ? and /*schema*/outbox_attempt.seq = gone.seq;
