-- The library's own record of its migrations.
create table if not exists /*schema*/outbox_migration (
    version int primary key,
    applied_at timestamptz not null default now()
);
