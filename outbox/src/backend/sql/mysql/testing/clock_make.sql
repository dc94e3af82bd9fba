-- The clock that tests move: one row, by how many microseconds it goes ahead of the database's.
create table /*schema*/outbox_test_clock (
    one smallint not null primary key,
    shift bigint not null
) engine = InnoDB;
insert into /*schema*/outbox_test_clock (one, shift) values (1, 0);
