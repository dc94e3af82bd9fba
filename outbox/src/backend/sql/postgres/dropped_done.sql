-- Nothing is left of the dropped consumer $1.
update /*schema*/outbox_dropped set done = true where id = $1 and not done;
