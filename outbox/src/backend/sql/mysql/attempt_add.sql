-- Records a failed attempt: ? consumer, seq, its number among all attempts of the message, error, worker, microseconds.
insert into /*schema*/outbox_attempt (consumer, seq, number, error, worker, duration_us) values (?, ?, ?, ?, ?, ?);
