-- Records a failed attempt: $3 its number among all attempts of the message.
insert into /*schema*/outbox_attempt (consumer, seq, number, error, worker, duration_us)
values ($1, $2, $3, $4, $5, $6)
on conflict (consumer, seq, number) do nothing;
