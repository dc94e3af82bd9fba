-- Registrations run one after the other.
select version from /*schema*/outbox_registry for update;
