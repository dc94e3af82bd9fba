-- Removes a lane in which nothing is left, under its own lock: $1 consumer, $2 lane.
delete from /*schema*/outbox_lane where consumer = $1 and lane = $2;
