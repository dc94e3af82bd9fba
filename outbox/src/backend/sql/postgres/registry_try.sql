-- Keeps registrations out until the transaction ends, unless one is at work: no row.
select version from /*schema*/outbox_registry for update skip locked;
