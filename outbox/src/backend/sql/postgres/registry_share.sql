-- Waits for a registration that has been announced and not committed, and keeps others out until the transaction ends.
-- A serialization failure where the transaction's snapshot is older than one that was.
select version from /*schema*/outbox_registry for share;
