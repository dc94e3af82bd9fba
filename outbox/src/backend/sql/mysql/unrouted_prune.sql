-- Removed messages of a type are not unrouted any more: ? type.
--
-- As a join that begins with the list: a condition on a list may be answered by reading the whole of a small table, or all of a
-- consumer's rows, and so by waiting for rows that others have just written: a deadlock that those may lose. Without an alias, which
-- such a DELETE looks for in the session's database, and there may be none.
delete /*schema*/outbox_unrouted from (/*each union all*/select /*number*/0 as seq/*end*/) gone
straight_join /*schema*/outbox_unrouted force index (primary)
    on /*schema*/outbox_unrouted.event_type = ? and /*schema*/outbox_unrouted.seq = gone.seq;
