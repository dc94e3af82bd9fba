-- Ends the statement that the transaction runs which began at $2 on the server's session $1. The session may serve another by now.
select pg_cancel_backend(pid) from pg_stat_activity
where pid = $1::bigint::int and (extract(epoch from xact_start) * 1000000)::bigint = $2;
