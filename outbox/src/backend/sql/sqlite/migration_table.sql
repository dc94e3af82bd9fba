-- The library's own record of its migrations.
create table if not exists /*schema*/outbox_migration (
    version integer primary key,
    applied_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer))
) strict;
