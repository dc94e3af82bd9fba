-- Transactions that write messages now. A publish takes this lock before it reads the announced version, so one
-- that is not in this list has seen the registry as announced, or fails as stale.
select l.virtualtransaction
from pg_locks l
where l.locktype = 'relation'
  and l.database = (select oid from pg_database where datname = current_database())
  and l.relation = '/*schema*/outbox_message'::regclass
  and l.mode = 'RowExclusiveLock'
  and l.granted;
