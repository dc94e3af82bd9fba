-- Nothing is left of the dropped consumer ?.
update /*schema*/outbox_dropped set done = true where id = ? and not done;
