-- The library's own record of its migrations.
create table if not exists /*schema*/outbox_migration (
    version int not null primary key,
    applied_at datetime(6) not null default (utc_timestamp(6))
) engine = InnoDB;
