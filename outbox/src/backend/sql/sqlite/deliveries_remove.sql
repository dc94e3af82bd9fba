-- Removes the first deliveries of a lane of a dropped consumer, under its lock: consumer, lane, how many.
delete from /*schema*/outbox_delivery
where consumer = ?1 and lane = ?2
  and seq <= (select seq
      from (select seq from /*schema*/outbox_delivery where consumer = ?1 and lane = ?2 order by seq limit ?3) first
      order by seq desc limit 1);
