-- The clock that tests move: one row, by how many microseconds it goes ahead of the database's.
create table /*schema*/outbox_test_clock (
    one integer primary key default 1 check (one = 1),
    shift integer not null
) strict;
insert into /*schema*/outbox_test_clock (shift) values (0);
