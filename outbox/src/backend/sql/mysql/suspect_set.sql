-- So many messages of the lane are to run alone: ? number, consumer, lane.
update /*schema*/outbox_suspect set alone = ? where consumer = ? and lane = ?;
