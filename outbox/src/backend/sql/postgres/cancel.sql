-- Ends the statement that another of our connections runs.
select pg_cancel_backend($1::bigint::int);
