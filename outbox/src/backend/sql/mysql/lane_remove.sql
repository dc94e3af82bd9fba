-- Removes a lane in which nothing is left, under its own lock: ? consumer, lane.
delete from /*schema*/outbox_lane where consumer = ? and lane = ?;
