-- After a handler. The release fails where the handler left or broke our transaction.
release savepoint outbox_handler;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;
set local jit = off;
set local plan_cache_mode = force_generic_plan;
delete from /*schema*/outbox_guard where id = pg_current_xact_id()::text::bigint;
