//! Retries, pauses, delays and death, as the policies say.

use std::time::{Duration, SystemTime};

use outbox::{Dead, Draft, ErrorKind, HandlerOptions, MessageId, Notice, OnDead, Retry};
use outbox_tests::act::{Act, Does, ECHOED, TOLD};
use outbox_tests::{TestBackend, check, eventually};

use crate::{LONG, Running, Scene, on_each_database};

on_each_database!(
    attempts_keep_their_distance_however_many_processes_there_are,
    a_restart_after_each_attempt_gives_no_attempt_away,
    lower_limits_leave_nothing_behind,
    a_terminal_failure_is_one_run,
    pauses_that_are_asked_for_are_kept_and_capped,
    a_snooze_is_no_attempt_and_its_key_waits,
    answers_decide_by_their_status,
    a_dead_head_blocks_its_key_or_is_skipped,
    without_order_nothing_waits,
    an_undecodable_payload_waits_for_a_person,
    an_unknown_type_is_put_back,
    a_paused_consumer_stands_still_and_the_others_go_on,
    delayed_messages_come_when_they_are_due,
    a_delay_survives_until_a_consumer_comes,
    the_history_goes_on_after_a_requeue_and_is_short,
    every_kind_of_notice_is_given,
);

fn id(id: &str) -> MessageId {
    MessageId::new(id).expect("valid")
}

fn failing() -> Act {
    Act::always(Does::Fail("never".into())).at("left")
}

async fn idle<DB: TestBackend>(scene: &Scene<DB>, change: impl Fn(&mut HandlerOptions)) -> outbox::Report {
    scene.left(change).build().expect("complete").run_until_idle().await.expect("nothing is in its way")
}

async fn attempts_keep_their_distance_however_many_processes_there_are<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let retry = Retry {
        max_attempts: 7,
        base: Duration::from_millis(150),
        multiplier: 1.5,
        max: Duration::from_millis(400),
        jitter: 0.2,
    };
    let workers: Vec<_> =
        (0..8).map(|_| Running::start(scene.left(move |options| options.retry = retry))).collect();
    scene.tell("fails", "a", failing()).await;
    scene.until_dead(1).await;
    for worker in workers {
        worker.end().await;
    }
    let runs = scene.runs.of_message("fails", "left");
    let attempts: Vec<u32> = runs.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6, 7]);
    let mut pause = retry.base;
    for pair in runs.windows(2) {
        let gap = pair[1].at.saturating_sub(pair[0].at);
        assert!(gap >= pause.mul_f64(1.0 - retry.jitter), "{gap:?} after a pause of {pause:?}: {runs:?}");
        pause = pause.mul_f64(retry.multiplier).min(retry.max);
    }
}

async fn a_restart_after_each_attempt_gives_no_attempt_away<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("fails", "a", failing()).await;
    let five = |options: &mut HandlerOptions| options.retry.max_attempts = 5;
    for _ in 0..9 {
        scene.left(five).build().expect("complete").run_once().await.expect("it ran");
    }
    assert_eq!((scene.runs.all().len(), scene.dead().await), (5, 1));
    scene.outbox.admin().requeue(&Dead::all()).await.expect("requeued");
    for _ in 0..9 {
        scene.left(five).build().expect("complete").run_once().await.expect("it ran");
    }
    assert_eq!((scene.runs.all().len(), scene.dead().await), (10, 1));
    let totals = "select total_attempts + 0 * count(*) from outbox_parked group by total_attempts";
    assert_eq!(scene.database.number(totals).await, 10);
    check::holds(&scene.database, "dead again").await;
}

async fn lower_limits_leave_nothing_behind<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for number in 0..3 {
        scene.tell(&format!("fails{number}"), &format!("key {number}"), failing()).await;
    }
    let many = |options: &mut HandlerOptions| {
        options.retry = Retry { max_attempts: 9, ..Retry::every(Duration::from_mins(1)) };
    };
    for _ in 0..4 {
        idle(&scene, many).await;
        let due = if DB::NAME == "SQLite" { "0" } else { "now()" };
        scene.database.execute(&format!("update outbox_parked set due_at = {due}")).await;
    }
    // Now with fewer attempts than were made. What failed before dies at its next failure; also in lanes in which a
    // process may have died, where an attempt is counted before it runs, a message has its run.
    scene
        .database
        .execute("insert into outbox_suspect (consumer, lane) select id, 0 from outbox_consumer")
        .await;
    let report = idle(&scene, |options| options.retry.max_attempts = 2).await;
    assert_eq!((report.dead, report.retried), (3, 0));
    assert_eq!(scene.runs.all().len(), 3 * 5);
    for letter in scene.outbox.admin().dead(&Dead::all()).await.expect("readable") {
        assert_eq!(letter.error.as_deref(), Some("never"), "{letter:?}");
        assert_eq!(letter.attempts, 5);
    }
    check::holds(&scene.database, "all are dead").await;
}

async fn a_terminal_failure_is_one_run<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("ends", "a", Act::always(Does::Terminal("no such order".into()))).await;
    let report = idle(&scene, |_| ()).await;
    assert_eq!((report.dead, report.retried, scene.runs.all().len()), (1, 0, 1));
    assert_eq!(idle(&scene, |_| ()).await.dead, 0);
    let letter = scene.outbox.admin().dead(&Dead::all()).await.expect("readable").remove(0);
    assert_eq!((letter.attempts, letter.error.as_deref()), (1, Some("no such order")));
    assert_eq!(scene.effects_of("ends").await, 0);
}

async fn pauses_that_are_asked_for_are_kept_and_capped<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("asks", "a", Act::first(1, Does::RetryAfter(400))).await;
    scene.tell("asks too much", "b", Act::first(1, Does::RetryAfter(86_400_000))).await;
    let policy = |options: &mut HandlerOptions| {
        options.retry = Retry {
            max_attempts: 3,
            base: Duration::from_millis(10),
            max: Duration::from_millis(600),
            ..Retry::DEFAULT
        };
    };
    let running = Running::start(scene.left(policy));
    scene.until_done().await;
    assert_eq!(running.end().await.retried, 2);
    for (message, least) in [("asks", 400), ("asks too much", 600)] {
        let runs = scene.runs.of_message(message, "left");
        let gap = runs[1].at.saturating_sub(runs[0].at);
        assert!(gap >= Duration::from_millis(least), "{message}: {gap:?}");
        assert_eq!((runs.len(), runs[1].attempt), (2, 2));
    }
}

async fn a_snooze_is_no_attempt_and_its_key_waits<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("snoozes", "a", Act::first(4, Does::Snooze(30))).await;
    scene.tell("behind", "a", Act::record()).await;
    // Longer than any clock can count to: it must neither be due at once nor break anything.
    scene.tell("for ever", "b", Act::always(Does::Snooze(u64::MAX))).await;
    let running = Running::start(scene.left(|options| options.retry.max_attempts = 1));
    scene.until_effect("behind").await;
    let report = running.end().await;
    assert_eq!((report.handled, report.snoozed, report.retried, report.dead), (2, 5, 0, 0));
    let runs = scene.runs.of_message("snoozes", "left");
    assert!(runs.iter().all(|run| run.attempt == 1) && runs.len() == 5, "{runs:?}");
    check::holds(&scene.database, "one sleeps").await;
}

async fn answers_decide_by_their_status<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for status in [404_u16, 410, 422] {
        scene.publish(Act::always(Does::Http(status, Some(1))).draft(&format!("ends{status}"))).await;
    }
    for (status, after) in [(429_u16, Some(50)), (503, None), (408, Some(1))] {
        scene.publish(Act::first(1, Does::Http(status, after)).draft(&format!("again{status}"))).await;
    }
    let running = Running::start(scene.left(|options| options.retry.max = Duration::from_millis(60)));
    eventually("the retried ones", LONG, async || scene.database.count("effects").await == 3).await;
    let report = running.end().await;
    assert_eq!((report.handled, report.retried, report.dead), (3, 3, 3));
    let letters = scene.outbox.admin().dead(&Dead::all().error("status 410")).await.expect("readable");
    assert_eq!(letters.len(), 1);
    let runs = scene.runs.of_message("again429", "left");
    assert!(runs[1].at.saturating_sub(runs[0].at) >= Duration::from_millis(50), "{runs:?}");
}

async fn a_dead_head_blocks_its_key_or_is_skipped<DB: TestBackend>() {
    for policy in [OnDead::Block, OnDead::Skip] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.left_registered().await;
        let change = |options: &mut HandlerOptions| {
            options.on_dead = policy;
            options.retry.max_attempts = 2;
        };
        let ends = Act::first(2, Does::Fail("broken".into()));
        scene.tell("head", "a", ends).await;
        scene.tell("before", "a", Act::record()).await;
        scene.tell("other", "b", Act::record()).await;
        assert_eq!(idle(&scene, change).await.dead, 1);
        scene.tell("after", "a", Act::record()).await;
        idle(&scene, change).await;
        let effects = "select message_id from effects where msg_key = 'a' order by id";
        if policy == OnDead::Skip {
            assert_eq!(scene.database.texts(effects).await, ["before", "after"]);
        } else {
            assert!(scene.database.texts(effects).await.is_empty());
        }
        assert_eq!(scene.effects_of("other").await, 1);
        assert_eq!(check::stranded(&scene.database).await, 0);
        let changed = scene.outbox.admin().requeue(&Dead::all()).await.expect("requeued");
        assert_eq!(changed.messages.len(), 1);
        scene.tell("last", "a", Act::record()).await;
        assert_eq!(idle(&scene, change).await.remaining, 0);
        let expected = match policy {
            OnDead::Block => ["head", "before", "after", "last"],
            OnDead::Skip => ["before", "after", "head", "last"],
        };
        assert_eq!(scene.database.texts(effects).await, expected);
    }
}

async fn without_order_nothing_waits<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("head", "a", Act::first(1, Does::Fail("broken".into()))).await;
    for number in 0..3 {
        scene.tell(&format!("behind{number}"), "a", Act::record()).await;
    }
    let change = |options: &mut HandlerOptions| {
        options.ordered = false;
        options.retry = Retry::every(Duration::from_millis(300));
    };
    let running = Running::start(scene.left(change));
    scene.until_done().await;
    running.end().await;
    let order = scene.database.texts("select message_id from effects order by id").await;
    assert_eq!(order, ["behind0", "behind1", "behind2", "head"]);
    assert_eq!(check::stranded(&scene.database).await + check::duplicates(&scene.database).await, 0);
}

async fn an_undecodable_payload_waits_for_a_person<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for (name, payload) in [
        ("no json", "{"),
        ("wrong shape", r#"{"does":{"RetryAfter":"soon"},"runs":1,"at":null,"echo":false}"#),
        ("no text", "\u{0}"),
    ] {
        let draft = Draft::new(TOLD.event_type, payload).id(id(name)).key(name);
        scene.publish(draft).await;
        scene.tell(&format!("behind {name}"), name, Act::record()).await;
    }
    for number in 0..20 {
        scene.publish(Act::record().draft(&format!("good{number}"))).await;
    }
    let report = idle(&scene, |_| ()).await;
    assert_eq!((report.handled, report.dead, report.remaining), (20, 3, 6));
    let letters = scene.outbox.admin().dead(&Dead::all().message(&id("wrong shape"))).await;
    let letter = letters.expect("readable").remove(0);
    let error = letter.error.unwrap_or_default();
    assert!(error.contains("does") && error.contains("soon"), "the path is named: {error}");
    assert_eq!(letter.attempts, 0, "no retry can mend it, and none was tried");
    // A fix of the data, or a deploy that can read it, and a requeue.
    let fixed = serde_json::to_string(&Act::record()).expect("JSON");
    let fixed = match DB::NAME {
        "SQLite" => format!("cast('{fixed}' as blob)"),
        "MySQL" => format!("'{fixed}'"),
        _ => format!("convert_to('{fixed}', 'UTF8')"),
    };
    let sql = format!(
        "update outbox_message set payload = {fixed} where id in ('no json', 'wrong shape', 'no text')"
    );
    scene.database.execute(&sql).await;
    let changed = scene.outbox.admin().requeue(&Dead::all()).await.expect("requeued");
    assert_eq!(changed.messages.len(), 3);
    let report = idle(&scene, |_| ()).await;
    assert_eq!((report.handled, report.dead, report.remaining), (6, 0, 0));
    check::holds(&scene.database, "all are handled").await;
}

async fn an_unknown_type_is_put_back<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    // A new build of the right consumer has run; now an old one runs, which does not know the second type.
    scene.registered().await;
    let sql = format!(
        "insert into outbox_subscription (event_type, consumer, ready)
         select '{}', id, {} from outbox_consumer where name = 'left'",
        ECHOED.event_type,
        if DB::NAME == "SQLite" { "1" } else { "true" }
    );
    scene.database.execute(&sql).await;
    let payload = serde_json::to_vec(&Act::record()).expect("JSON");
    scene.publish(Draft::new(ECHOED.event_type, payload).id(id("new")).key("a")).await;
    scene.tell("known", "a", Act::record()).await;
    let report = idle(&scene, |_| ()).await;
    assert_eq!((report.handled, report.parked, report.dead), (0, 1, 0), "its key waits for it");
    check::holds(&scene.database, "put back").await;
    let waits = "select count(*) from outbox_parked where state = 5 and attempts = 0 and due_at is not null";
    assert_eq!(scene.database.number(waits).await, 1);
    // Discarding is for what is dead.
    assert_eq!(scene.outbox.admin().discard(&Dead::all()).await.expect("nothing").messages, []);
}

async fn a_paused_consumer_stands_still_and_the_others_go_on<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let running = Running::start(scene.both(|_| ()));
    let admin = scene.outbox.admin();
    admin.pause("left").await.expect("it is known");
    assert_eq!(admin.pause("lefty").await.expect_err("unknown").kind(), ErrorKind::NotFound);
    for number in 0..5 {
        scene.tell(&format!("m{number}"), "a", Act::record()).await;
    }
    let by = |consumer: &str| format!("select count(*) from effects where consumer = '{consumer}'");
    eventually("the other consumer", LONG, async || scene.database.number(&by("right")).await == 5).await;
    // What is due by itself stays, too, over the next looks.
    scene.tell("witness", "b", Act::record()).await;
    eventually("the other consumer", LONG, async || scene.database.number(&by("right")).await == 6).await;
    assert_eq!(scene.database.number(&by("left")).await, 0);
    admin.resume("left").await.expect("it is known");
    scene.until_done().await;
    running.end().await;
    check::holds(&scene.database, "resumed").await;
}

async fn delayed_messages_come_when_they_are_due<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let now = SystemTime::now();
    let draft = |name: &str| Act::record().draft(name).key("a");
    scene.publish(draft("past").deliver_at(SystemTime::UNIX_EPOCH)).await;
    scene.publish(draft("long past").deliver_at(SystemTime::UNIX_EPOCH - Duration::from_hours(24))).await;
    let published = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    scene.publish(draft("soon").deliver_after(Duration::from_millis(500))).await;
    scene.publish(draft("at once").deliver_after(Duration::ZERO)).await;
    scene.publish(draft("in 2040").deliver_at(SystemTime::UNIX_EPOCH + Duration::from_hours(613_608))).await;
    scene.publish(draft("in a century").deliver_after(Duration::from_hours(36_524 * 24))).await;
    scene.publish(draft("not delayed")).await;
    let tx = scene.outbox.begin().await.expect("begun");
    for beyond in [
        draft("beyond").deliver_after(Duration::MAX),
        draft("beyond").deliver_at(now + Duration::from_hours(24 * 365 * 9_000)),
    ] {
        assert_eq!(tx.publish(beyond).expect_err("beyond").kind(), ErrorKind::InvalidMessage);
    }
    tx.rollback().await.expect("rolled back");
    let running = Running::start(scene.left(|_| ()));
    scene.until_effect("soon").await;
    let report = running.end().await;
    assert_eq!(report.handled, 5);
    let soon = scene.runs.of_message("soon", "left").remove(0);
    assert!(soon.at >= published + Duration::from_millis(500), "{soon:?} is early");
    assert_eq!(check::undone(&scene.database).await, 2, "two are far away");
    check::holds(&scene.database, "two are far away").await;
}

async fn a_delay_survives_until_a_consumer_comes<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.publish(Act::record().draft("later").deliver_after(Duration::from_millis(800))).await;
    scene.publish(Act::record().draft("far").deliver_after(Duration::from_hours(24))).await;
    scene.publish(Act::record().draft("now")).await;
    let published = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let running = Running::start(scene.left(|_| ()));
    scene.until_effect("later").await;
    let report = running.end().await;
    assert_eq!(report.handled, 2);
    let later = scene.runs.of_message("later", "left").remove(0);
    // The clock began to run at the publish, a little before it was read here.
    assert!(later.at >= published + Duration::from_millis(400), "{later:?} is early");
    assert_eq!(scene.database.count("outbox_unrouted").await, 0);
    check::holds(&scene.database, "one is far away").await;
}

async fn the_history_goes_on_after_a_requeue_and_is_short<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let error = format!("line\u{0}\u{1b}[31m{}", "long ".repeat(2_000));
    scene.tell("fails", "a", Act::always(Does::Fail(error))).await;
    let admin = scene.outbox.admin();
    for _ in 0..5 {
        let report = idle(&scene, |options| options.retry.max_attempts = 5).await;
        assert_eq!((report.retried, report.dead), (4, 1));
        admin.requeue(&Dead::all()).await.expect("requeued");
    }
    let attempts = admin.attempts(&id("fails"), "left").await.expect("readable");
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (6..=25).collect::<Vec<u32>>());
    let error = &attempts[0].error;
    assert!(error.len() <= 4096 && error.starts_with("line\u{fffd}\u{fffd}[31mlong"), "{error}");
    assert!(attempts.iter().all(|attempt| !attempt.worker.is_empty()));
    assert_eq!(admin.attempts(&id("fails"), "right").await.expect("readable"), []);
    assert_eq!(admin.attempts(&id("unknown"), "left").await.expect("readable"), []);
}

async fn every_kind_of_notice_is_given<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let mut notices = scene.outbox.notices();
    scene.tell("good", "a", Act::record().echo()).await;
    scene.tell("again", "b", Act::first(1, Does::Fail("not yet".into()))).await;
    scene.tell("sleeps", "c", Act::first(1, Does::Snooze(1))).await;
    scene.tell("ends", "d", Act::always(Does::Terminal("no".into()))).await;
    let running = Running::start(scene.left(|_| ()));
    scene.until_effect("again").await;
    scene.until_effect("sleeps").await;
    scene.until_dead(1).await;
    // An id that was handled and pruned, and arrives once more.
    scene.until_effect("good").await;
    scene.database.execute("delete from outbox_message where id = 'good'").await;
    scene.tell("good", "a", Act::record()).await;
    running.end().await;
    idle(&scene, |_| ()).await;
    // A type that this build does not know.
    let sql = format!(
        "insert into outbox_subscription (event_type, consumer, ready) select '{}', id, {} from outbox_consumer",
        ECHOED.event_type,
        if DB::NAME == "SQLite" { "1" } else { "true" }
    );
    scene.database.execute(&sql).await;
    scene.publish(Draft::new(ECHOED.event_type, "{}").id(id("unknown"))).await;
    idle(&scene, |_| ()).await;

    let mut seen = Vec::new();
    while let Ok(Some(notice)) = tokio::time::timeout(Duration::from_millis(100), notices.next()).await {
        seen.push(match notice {
            Notice::Stored { messages } => format!("stored {} {}", messages[0].id, messages[0].event_type),
            Notice::Handled { message_id, attempt, .. } => format!("handled {message_id} {attempt}"),
            Notice::AttemptFailed { message_id, attempt, error, again_in, .. } => {
                assert!(again_in.is_some());
                format!("failed {message_id} {attempt} {error}")
            }
            Notice::Snoozed { message_id, pause, .. } => format!("snoozed {message_id} {pause:?}"),
            Notice::Dead { message_id, attempt, blocked_key, error, .. } => {
                format!("dead {message_id} {attempt} {} {error}", blocked_key.unwrap_or_default())
            }
            Notice::Duplicate { message_id, .. } => {
                format!("duplicate {}", message_id.expect("its row is there"))
            }
            Notice::UnknownType { message_id, event_type, .. } => {
                format!("unknown {message_id} {event_type}")
            }
            other => panic!("{other:?} is new; test it"),
        });
    }
    for expected in [
        "stored good told",
        "stored good-echo told.echo",
        "handled good 1",
        "handled again 2",
        "handled sleeps 1",
        "failed again 1 not yet",
        "snoozed sleeps Some(1ms)",
        "dead ends 1 d no",
        "duplicate good",
        "unknown unknown told.echo",
    ] {
        assert!(seen.iter().any(|notice| notice == expected), "{expected} is not among {seen:#?}");
    }
}
