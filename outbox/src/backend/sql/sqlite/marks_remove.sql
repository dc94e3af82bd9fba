-- Removes marks of a dropped consumer, which has no lanes any more: consumer, how many.
delete from /*schema*/outbox_inbox
where consumer = ?1
  and message_id <= (select message_id
      from (select message_id from /*schema*/outbox_inbox where consumer = ?1 order by message_id limit ?2) first
      order by message_id desc limit 1);
