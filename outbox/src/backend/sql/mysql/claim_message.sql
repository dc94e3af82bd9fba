-- Claims a message before its call, or again where it is claimed by somebody who is not alive: ? consumer, id, for whom, for how
-- many microseconds (null = as long as its lane is leased), the how manieth attempt it is at least; microseconds, the attempt;
-- microseconds, for whom; for whom, microseconds. Nothing changes where it is handled, or claimed by somebody who may be alive;
-- who has leased the lane knows that nobody else has.
--
-- One statement, which locks the row that it meets for itself: an insert that fails shares its lock, and an update that finds
-- nothing locks the gap, and two who have done either cannot go on. Assignments see those before them, so the owner comes when
-- the attempt has been counted, and the time where the owner is the new one.
insert into /*schema*/outbox_inbox (consumer, message_id, claimed_by, claimed_until, attempts)
values (?, ?, ?, utc_timestamp(6)/*now*/ + interval ? microsecond, ?)
on duplicate key update
    attempts = if(claimed_by is not null
                  and (claimed_until <= utc_timestamp(6)/*now*/ or claimed_until is null and ? is null),
                  greatest(?, attempts + 1), attempts),
    claimed_by = if(claimed_by is not null
                    and (claimed_until <= utc_timestamp(6)/*now*/ or claimed_until is null and ? is null),
                    ?, claimed_by),
    claimed_until = if(claimed_by = ?, utc_timestamp(6)/*now*/ + interval ? microsecond, claimed_until);
