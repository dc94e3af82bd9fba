-- Before a handler: the session's own planner settings, the row that a commit would meet, and the savepoint that
-- takes the handler's work back. One round trip, as are disarm and undo.
set local enable_seqscan to default;
set local enable_bitmapscan to default;
set local enable_sort to default;
set local jit to default;
set local plan_cache_mode to default;
insert into /*schema*/outbox_guard (id, unsettled) values (pg_current_xact_id()::text::bigint, 1);
savepoint outbox_handler;
