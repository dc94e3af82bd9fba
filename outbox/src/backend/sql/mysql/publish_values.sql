-- The messages of a publish as the session's variables; what stands between the marks is repeated for each message with its
-- number in place of 0. So the next statements, which no interruption may part, go in one packet, and without a text of
-- anybody's in them.
set /*each*/@outbox_0_id = ?, @outbox_0_type = ?, @outbox_0_version = ?, @outbox_0_topic = ?, @outbox_0_source = ?,
    @outbox_0_aggregate = ?, @outbox_0_key = ?, @outbox_0_hash = ?, @outbox_0_slot = ?, @outbox_0_payload = ?,
    @outbox_0_content = ?, @outbox_0_headers = ?, @outbox_0_at = ?, @outbox_0_after = ?/*end*/;
