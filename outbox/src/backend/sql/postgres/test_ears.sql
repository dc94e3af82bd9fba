-- Says something on the channel $1 that is no reason to look for work.
select pg_notify($1, 'do you hear');
