-- By how much a test has moved the clock.
select shift from /*schema*/outbox_test_clock;
