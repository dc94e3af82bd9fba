-- Lets publishers with an older snapshot notice, under the registry's lock: sequences belong to no snapshot.
select setval('/*schema*/outbox_registry_version', (select version from /*schema*/outbox_registry));
