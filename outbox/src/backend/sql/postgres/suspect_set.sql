-- So many messages of the lane are to run alone: $3.
update /*schema*/outbox_suspect set alone = $3 where consumer = $1 and lane = $2;
