//! What was published is what is stored and handed over, byte for byte, and names are compared by their bytes.

use outbox::{Config, Draft, Headers, Message, Tables};
use outbox_tests::{TestBackend, TestDatabase, handler};

use crate::common::*;

on_each_database!(
    payloads_are_kept_to_the_byte,
    floats_reach_the_handler_to_the_bit,
    headers_and_astral_text_come_back,
    names_that_differ_in_case_accents_or_blanks_are_different,
    everything_about_a_message_reaches_the_handler,
    ids_that_are_made_at_once_never_collide;
    empty: tables_may_have_a_schema_and_a_prefix, two_outboxes_in_one_database_do_not_meet,
);

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

async fn payloads_are_kept_to_the_byte<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let payloads: [&[u8]; 10] = [
        br#"{"b":1.0,"a":1e2, "b" : 2,"nested":{"z":[ ],"y":0.10}}   "#,
        br#""a\u0000b""#,
        br"[1.0,-0.0,1E+2,100000000000000000000000000000,0.1e-7]",
        "{\"emoji\":\"🚀 e\u{301} \u{10ffff}\"}".as_bytes(),
        br"{",
        b"\xff\xfe\x00\x80 not UTF-8",
        b"\x00",
        b"'; drop table outbox_message; --",
        br"back\slash $1 ? :name",
        b"",
    ];
    for (n, payload) in payloads.iter().enumerate() {
        publish(&outbox, Draft::new("order.placed", *payload).id(id(&n.to_string()))).await;
    }
    // As a list and at once, the other two ways to the table.
    let tx = outbox.begin().await.expect("begun");
    for (n, payload) in payloads.iter().enumerate() {
        tx.publish(Draft::new("order.placed", *payload).id(id(&format!("1{n}")))).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let mut tx = database.pool().begin().await.expect("begun");
    for (n, payload) in payloads.iter().enumerate() {
        let draft = Draft::new("order.placed", *payload).id(id(&format!("2{n}")));
        outbox.publish(&mut tx, draft).await.expect("published");
    }
    tx.commit().await.expect("committed");

    // The first attempt of each fails, so that the bytes of a retry are looked at as well.
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let metadata = ctx.metadata().clone();
            let sql = format!("insert into business (message_id) values ('{}')", hex(&metadata.payload));
            DB::execute(ctx, &sql).await?;
            if metadata.attempt() == 1 && metadata.id.as_str().len() == 1 {
                return Err("not yet".into());
            }
            let copy = Message::from_json(&metadata.to_json()?)?;
            assert_eq!(copy, *metadata, "the message as JSON");
            record(ctx).await
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    settled(&database).await;
    running.stop().await;
    let mut seen = database.texts("select message_id from business").await;
    seen.sort();
    let mut expected: Vec<String> = (0..3).flat_map(|_| payloads.iter().map(|bytes| hex(bytes))).collect();
    expected.sort();
    assert_eq!(seen, expected);
    let stored = by_database::<DB, _>("lower(hex(payload))", "encode(payload, 'hex')", "lower(hex(payload))");
    let sql = format!("select {stored} from outbox_message where length(id) = 1 order by id");
    assert_eq!(database.texts(&sql).await, payloads.iter().map(|bytes| hex(bytes)).collect::<Vec<_>>());
}

async fn floats_reach_the_handler_to_the_bit<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut amounts = vec![
        117.633_313_394_000_17,
        9_007_199_254_740_991.0,
        1e-203,
        -0.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
    ];
    amounts.extend((0..300).map(|_| f64::from_bits(fastrand::u64(..))).filter(|float| float.is_finite()));
    let mut tx = database.pool().begin().await.expect("begun");
    let events = amounts.iter().map(|amount| Placed { order: amount.to_bits().to_string(), amount: *amount });
    outbox.publish_events(&mut tx, events).await.expect("published");
    tx.commit().await.expect("committed");
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let placed: Placed = outbox::codec::decode(
                &ctx.metadata().payload,
                "application/json",
                &outbox::__private::Codecs::default(),
            )?;
            if placed.amount.to_bits().to_string() != placed.order {
                return Err(format!("{} came back as {}", placed.order, placed.amount).into());
            }
            Ok(())
        })
    });
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.retried), (amounts.len() as u64, 0));
}

async fn headers_and_astral_text_come_back<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let texts =
        ["🚀", "Zoë 100% \"x\" \\ '", "{\"a\":1}", "a\tb", "", " trailing ", "e\u{301}\u{10ffff}", "$1 ? :a"];
    let mut headers = Headers::new();
    for (n, text) in texts.iter().enumerate() {
        headers.insert(format!("x-{n}"), *text).expect("a valid header");
    }
    let draft = placed("🚀 é \u{10ffff}").id(id("i-🚀")).source("q-🚀").headers(headers.clone());
    publish(&outbox, draft).await;
    let script = Script::<DB>::new(move |ctx| {
        let headers = headers.clone();
        Box::pin(async move {
            assert_eq!(ctx.metadata().headers, headers);
            assert_eq!(ctx.metadata().aggregate_id.as_deref(), Some("🚀 é \u{10ffff}"));
            assert_eq!(ctx.metadata().source.as_deref(), Some("q-🚀"));
            record(ctx).await?;
            Err("🚀 failed".into())
        })
    });
    assert_eq!(drain(&outbox, &script).await.retried, 1);
    assert_eq!(database.texts("select last_error from outbox_parked").await, ["🚀 failed"]);
    due_now(&database).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    settled(&database).await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["i-🚀"]);
}

handler!(Lower, consumer "mail", types [PLACED], run plain);
handler!(Upper, consumer "Mail", types [PLACED], run plain);
handler!(Accent, consumer "maïl", types [PLACED], run plain);
handler!(Blank, consumer "mail ", types [PLACED], run plain);

async fn plain<DB: TestBackend>(ctx: &mut outbox::Context<DB>) -> Outcome {
    record(ctx).await
}

async fn names_that_differ_in_case_accents_or_blanks_are_different<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    let consumers = || {
        let all = outbox.consumers().handler::<Lower>().handler::<Upper>().handler::<Accent>();
        all.handler::<Blank>().config(quick()).build().expect("four consumers")
    };
    consumers().run_until_idle().await.expect("it ran");
    // The last two are the same to the eye and differ in their bytes.
    let names = ["K", "k", "k ", " k", "kk", "é", "e", "E", "\u{e9}\u{301}", "e\u{301}"];
    let tx = outbox.begin().await.expect("begun");
    for name in names {
        tx.publish(placed(name).id(id(name))).expect("accepted");
    }
    let stored = tx.commit().await.expect("committed");
    assert!(stored.iter().all(|outcome| matches!(outcome, outbox::Published::Stored(_))), "{stored:?}");
    assert_eq!(database.number("select count(distinct key_hash) from outbox_message").await, 10);
    let report = consumers().run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.duplicates), (40, 0));
    for consumer in ["mail", "Mail", "maïl", "mail "] {
        let mut handled = handled_by(&database, consumer).await;
        handled.sort();
        let mut expected = names;
        expected.sort_unstable();
        assert_eq!(handled, expected, "{consumer:?}");
    }
    assert_eq!(database.count("outbox_consumer").await, 4);
    assert_eq!(database.count("outbox_inbox").await, 40);
}

async fn everything_about_a_message_reaches_the_handler<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let before = std::time::SystemTime::now();
    let mut headers = Headers::new();
    headers.insert("tenant", "t1").expect("valid");
    let draft =
        placed("7").id(id("m")).version(3).topic("sales").source("shop").key("k").headers(headers.clone());
    publish(&outbox, draft).await;
    publish(&outbox, Draft::new("order.placed", "x").content_type("text/plain").id(id("bare"))).await;
    let script = Script::<DB>::new(move |ctx| {
        let headers = headers.clone();
        Box::pin(async move {
            let message = ctx.metadata().clone();
            assert_eq!((message.consumer(), message.attempt()), ("ledger", 1));
            assert_eq!(message.event_type, "order.placed");
            // Both clocks are this machine's.
            let age = message.created_at.duration_since(before).unwrap_or_else(|early| early.duration());
            assert!(age < LONG, "{age:?}");
            if message.id.as_str() == "m" {
                assert_eq!((message.version, &*message.topic), (3, "sales"));
                assert_eq!(message.source.as_deref(), Some("shop"));
                assert_eq!(message.aggregate_id.as_deref(), Some("7"));
                assert_eq!(message.key.as_deref(), Some("k"));
                assert_eq!(message.headers, headers);
                assert_eq!(message.content_type, "application/json");
            } else {
                assert_eq!((message.version, &*message.topic), (1, "order"));
                assert_eq!((&message.source, &message.aggregate_id, &message.key), (&None, &None, &None));
                assert!(message.headers.is_empty());
                assert_eq!(message.content_type, "text/plain");
            }
            record(ctx).await
        })
    });
    assert_eq!(drain(&outbox, &script).await.handled, 2);
}

async fn ids_that_are_made_at_once_never_collide<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let new_id = outbox.config().new_id;
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || (0..20_000).map(|_| new_id()).collect::<Vec<_>>()))
        .collect();
    let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

async fn tables_may_have_a_schema_and_a_prefix<DB: TestBackend>(database: TestDatabase<DB>) {
    // On MySQL a schema is a database, and this test has one.
    let schema = by_database::<DB, _>("main", "shop", database.address()).to_owned();
    if is_postgres::<DB>() {
        database.execute("create schema shop").await;
    }
    DB::create_ledger(&mut *database.connection().await).await.expect("the ledger can be made");
    let tables = Tables::new(&schema, "app_1_").expect("valid names");
    let outbox = database.outbox_with(Config { tables, ..Config::default() });
    outbox.migrate().await.expect("migrated");
    register(&outbox).await;
    publish(&outbox, placed_as("a", "7")).await;
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await.expect("published");
    tx.commit().await.expect("committed");
    // A failure, a wait behind it, and the way back.
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            ctx.publish(Draft::new("order.noted", "{}"))?;
            if ctx.metadata().attempt() == 1 { Err("once".into()) } else { Ok(()) }
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    effects(&database, 3).await;
    running.stop().await;
    assert_eq!(database.count("effects").await, 3);
    assert_eq!(database.count(&format!("{schema}.app_1_outbox_message")).await, 6);
    assert_eq!(database.count(&format!("{schema}.app_1_outbox_parked")).await, 0);
    // Nothing of the library is anywhere else.
    let elsewhere = by_database::<DB, _>(
        "select count(*) from sqlite_master where name like '%outbox%' and name not like '%app_1_outbox%'",
        "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where c.relname like '%outbox%' and n.nspname <> 'shop'",
        "select count(*) from information_schema.tables where table_schema = database() \
         and table_name like '%outbox%' and table_name not like '%app_1_outbox%'",
    );
    assert_eq!(database.number(elsewhere).await, 0);
}

async fn two_outboxes_in_one_database_do_not_meet<DB: TestBackend>(database: TestDatabase<DB>) {
    DB::create_ledger(&mut *database.connection().await).await.expect("the ledger can be made");
    let outbox = |prefix| {
        let tables = Tables::new("", prefix).expect("valid names");
        database.outbox_with(Config { tables, ..Config::default() })
    };
    let (one, two, plain) = (outbox("one_"), outbox("two_"), database.outbox());
    for outbox in [&one, &two, &plain] {
        outbox.migrate().await.expect("migrated");
        register(outbox).await;
    }
    // All in one transaction, with one id.
    let mut tx = database.pool().begin().await.expect("begun");
    for outbox in [&one, &two] {
        let published = outbox.publish(&mut tx, placed_as("m", "7")).await.expect("published");
        assert_eq!(published, outbox::Published::Stored(id("m")));
    }
    tx.commit().await.expect("committed");
    assert_eq!(drain(&plain, &Script::record()).await.handled, 0);
    assert_eq!(drain(&one, &Script::record()).await.handled, 1);
    assert_eq!(drain(&one, &Script::record()).await.handled, 0);
    assert_eq!(drain(&two, &Script::record()).await.handled, 1);
    assert_eq!(handled(&database).await, ["m", "m"]);
}
