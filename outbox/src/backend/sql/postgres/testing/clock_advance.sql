-- Moves the clock: $1 microseconds.
update /*schema*/outbox_test_clock set shift = shift + $1::bigint * interval '1 microsecond';
