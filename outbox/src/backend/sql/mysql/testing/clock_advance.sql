-- Moves the clock: ? microseconds.
update /*schema*/outbox_test_clock set shift = shift + ?;
