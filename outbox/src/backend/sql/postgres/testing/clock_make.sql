-- The clock that tests move: one row, by how much it goes ahead of the database's.
create table /*schema*/outbox_test_clock (
    one smallint primary key default 1 check (one = 1),
    shift interval not null
);
insert into /*schema*/outbox_test_clock (shift) values (interval '0');
