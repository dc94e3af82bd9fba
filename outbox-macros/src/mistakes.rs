//! Every mistake that has a message of its own. How the most common ones look to a user is in `tests/ui`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{event, handler};

#[track_caller]
fn assert_says(expansion: &TokenStream, expected: &str) {
    let text = expansion.to_string();
    let messages: Vec<_> = text.split("compile_error ! {").skip(1).collect();
    assert!(
        messages.len() == 1 && messages[0].contains(expected),
        "expected only {expected:?}, found {messages:#?}"
    );
}

macro_rules! events {
    ($($test:ident { $($event:tt)* } => $expected:literal)*) => {$(
        #[test]
        fn $test() {
            assert_says(&event::derive(quote!($($event)*)), $expected);
        }
    )*};
}

events! {
    an_option_without_parentheses { #[outbox] struct A { id: u8 } } => "expected attribute arguments"
    a_literal_as_an_option { #[outbox("a")] struct A { id: u8 } } => "unexpected literal"
    a_number_for_a_text { #[outbox(type = 5)] struct A { id: u8 } } => "`type` takes a text"
    an_expression_for_a_text { #[outbox(type = NAME)] struct A { id: u8 } } => "`type` takes a text"
    a_version_that_is_too_high { #[outbox(version = 2147483648)] struct A { id: u8 } } => "from 1 to 2147483647"
    an_empty_topic { #[outbox(topic = "")] struct A { id: u8 } } => "from 1 to 255 bytes"
    a_path_that_is_none { #[outbox(crate = 5)] struct A { id: u8 } } => "`crate` takes a path"
    a_text_that_is_no_path { #[outbox(crate = "a b")] struct A { id: u8 } } => "`crate` takes a path"
    a_flag_with_a_value { #[outbox(union = true)] enum A { B(C) } } => "`union` takes no value"
    a_name_that_is_not_ascii { struct Größe { id: u8 } } => "no event type can be made of `Größe`"
    a_hole_that_is_empty { #[outbox(type = "a.{}")] struct A { id: u8 } } => "`{}` is no constant"
    a_hole_with_an_expression { #[outbox(type = "a.{1 + 1}")] struct A { id: u8 } } => "is no constant"
    a_parameter_of_another_type { #[outbox(type = "a.{N}")] struct A<const N: &'static str> { id: u8 } } => "`N` cannot be part"
    no_topic_before_a_hole { #[outbox(type = "{C::CODE}.a")] struct A { id: u8 } } => "no topic can be read off"
    an_alias_of_itself { #[outbox(alias = "a")] struct A { id: u8 } } => "answers to `a` already"
    an_alias_given_twice { #[outbox(alias = "b", alias = "b")] struct A { id: u8 } } => "answers to `b` already"
    an_upcast_without_parentheses { #[outbox(upcast = V1, version = 2)] struct A { id: u8 } } => "`upcast` takes older versions"
    an_empty_upcast { #[outbox(upcast(), version = 2)] struct A { id: u8 } } => "`upcast` takes older versions"
    an_upcast_without_a_version { #[outbox(upcast(V1), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_without_a_type { #[outbox(upcast(1), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_without_a_type_after_its_arrow { #[outbox(upcast(1 =>), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_with_another_sign { #[outbox(upcast(1 = V1), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_of_a_text { #[outbox(upcast("1" => V1), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_of_a_value { #[outbox(upcast(1 => 5), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_of_version_0 { #[outbox(upcast(0 => V0), version = 2)] struct A { id: u8 } } => "versions go from 1"
    an_upcast_of_a_signed_version { #[outbox(upcast(-1 => V1), version = 2)] struct A { id: u8 } } => "no version and its type"
    an_upcast_of_an_event_without_a_version { #[outbox(upcast(1 => V1))] struct A { id: u8 } } => "`version = 2`"
    an_upcast_of_the_version_itself { #[outbox(upcast(2 => V2), version = 2)] struct A { id: u8 } } => "a version below 2"
    an_upcast_of_a_later_version { #[outbox(upcast(1 => V1, 3 => V3), version = 2)] struct A { id: u8 } } => "a version below 2"
    an_upcast_twice { #[outbox(upcast(1 => V1), upcast(1 => B), version = 2)] struct A { id: u8 } } => "version 1 is upcast twice"
    an_upcast_to_itself { #[outbox(upcast(1 => A), version = 2)] struct A { id: u8 } } => "from `A` to `A`"
    an_upcast_to_self { #[outbox(upcast(1 => Self), version = 2)] struct A { id: u8 } } => "from `A` to `A`"
    a_gap_between_upcasts { #[outbox(upcast(1 => V1, 3 => V3), version = 4)] struct A { id: u8 } } => "from version 1 to version 3"
    a_gap_before_the_event { #[outbox(upcast(1 => V1), version = 3)] struct A { id: u8 } } => "say what version 2 was"
    an_upcast_of_a_variant_without_a_version {
        #[outbox(aggregate = none)] enum A { #[outbox(upcast(1 => V1))] B }
    } => "`version = 2`"
    an_upcast_of_a_union { #[outbox(union, upcast(1 => V1))] enum A { B(C) } } => "no event type of its own"
    an_empty_template { #[outbox(aggregate = "")] struct A { id: u8 } } => "never empty"
    a_broken_template_and_no_id { #[outbox(aggregate = "")] struct A; } => "never empty"
    none_in_quotes { #[outbox(aggregate = "none")] struct A { id: u8 } } => "one aggregate of the name `none`"
    another_word_than_none { #[outbox(aggregate = off)] struct A { id: u8 } } => "`aggregate` takes a text"
    a_format_in_a_template { #[outbox(aggregate = "{id:04}")] struct A { id: u8 } } => "`{id:04}` is no field"
    a_template_over_self { #[outbox(aggregate = "{self.id}")] struct A { id: u8 } } => "`{self.id}` is no field"
    a_template_without_fields { #[outbox(aggregate = "{id}")] struct A; } => "`A` has no field `id`"
    no_fields_at_all { struct A; } => "which aggregate does `A` belong to?"
    a_tuple_without_a_mark { struct A(u8); } => "`#[outbox(aggregate = \\\"order-{0}\\\")]`"
    two_marks { struct A(#[outbox(aggregate_id)] u8, #[outbox(aggregate_id)] u8); } => "`1` is a second field marked"
    a_mark_beside_none {
        #[outbox(aggregate = none)] struct A { #[outbox(aggregate_id)] id: u8 }
    } => "says twice"
    two_keys { struct A { #[outbox(key)] id: u8, #[outbox(key)] b: u8 } } => "`b` is a second field marked as the key"
    a_header_without_a_name { struct A(#[outbox(aggregate_id, header)] u8); } => "needs a name for its header"
    a_header_with_a_space { struct A { #[outbox(header = "a b")] id: u8 } } => "`a b` is no name of a header"
    two_headers_of_one_name {
        struct A { #[outbox(header)] id: u8, #[outbox(header = "ID")] b: u8 }
    } => "a second header `ID`"
    a_field_option_on_the_type { #[outbox(key)] struct A { id: u8 } } => "`key` is written on a field"
    a_container_option_on_a_variant {
        #[outbox(aggregate = none)] enum A { #[outbox(topic = "t")] B }
    } => "`topic` is written on the struct or enum"
    an_enum_without_variants { enum A {} } => "`A` has no variants"
    an_alias_of_an_enum { #[outbox(alias = "b", aggregate = none)] enum A { B } } => "stands for none of its event types"
    two_variants_of_one_type {
        #[outbox(aggregate = none)] enum A { B, #[outbox(type = "c", alias = "a.b")] C }
    } => "two variants have the event type `a.b`"
    a_variant_without_an_aggregate { enum A { B { id: u8 }, C } } => "which aggregate does `C` belong to?"
    a_struct_as_a_union { #[outbox(union)] struct A { id: u8 } } => "`A` is no union of events"
    a_union_without_variants { #[outbox(union)] enum A {} } => "the union `A` has no variants"
    a_union_with_a_topic { #[outbox(union, topic = "t")] enum A { B(C) } } => "no event type of its own"
    a_union_with_options_inside { #[outbox(union)] enum A { #[outbox(version = 2)] B(C) } } => "has no options"
    a_union_with_an_event_twice { #[outbox(union)] enum A { B(C), D(C) } } => "`B` holds this event too"
}

#[test]
fn a_name_that_is_too_long() {
    let name = "a".repeat(256);
    let event = quote!(
        #[outbox(type = #name)]
        struct A {
            id: u8,
        }
    );
    assert_says(&event::derive(event), "at most 255 bytes");
}

macro_rules! handlers {
    ($($test:ident ($($options:tt)*) { $($function:tt)* } => $expected:literal)*) => {$(
        #[test]
        fn $test() {
            assert_says(&handler::attribute(quote!($($options)*), &quote!($($function)*)), $expected);
        }
    )*};
}

handlers! {
    an_empty_consumer (consumer = "") { async fn a(_: E) {} } => "from 1 to 255 bytes"
    a_consumer_that_is_no_text (consumer = billing) { async fn a(_: E) {} } => "`consumer` takes a text"
    instances_without_parentheses (instances) { async fn a<T>(_: T) {} } => "`instances` takes the arguments"
    instances_without_brackets (instances(E)) { async fn a<T>(_: T) {} } => "`instances` takes the arguments"
    no_instances (instances()) { async fn a<T>(_: T) {} } => "`instances` takes the arguments"
    an_instance_twice (instances(<E>, <E>)) { async fn a<T>(_: T) {} } => "listed twice"
    an_instance_of_what_is_not_generic (instances(<E>)) { async fn a(_: E) {} } => "remove `instances`"
    instances_of_a_manual_handler (manual, instances(<E>)) { async fn a<T>(_: T) {} } => "`manual` says that nothing is"
    a_retry_without_parentheses (retry = 5) { async fn a(_: E) {} } => "`retry` takes its options in parentheses"
    a_policy_in_the_wrong_place (max_attempts = 5) { async fn a(_: E) {} } => "`max_attempts` is written on `retry(..)`"
    an_option_of_the_handler_in_its_retry (retry(timeout = "5s")) { async fn a(_: E) {} } => "written on a function"
    an_unknown_policy (retry(jiter = 0.1)) { async fn a(_: E) {} } => "did you mean `jitter`?"
    no_attempt (retry(max_attempts = 0)) { async fn a(_: E) {} } => "`max_attempts` takes a number from 1"
    too_much_jitter (retry(jitter = 1.5)) { async fn a(_: E) {} } => "`jitter` takes a number from 0 to 1"
    a_shrinking_pause (retry(multiplier = 0.5)) { async fn a(_: E) {} } => "`multiplier` takes a number from 1"
    a_base_over_max (retry(base = "9s", max = "8s")) { async fn a(_: E) {} } => "`base` is longer than `max`"
    a_time_of_another_kind (timeout = "3 fortnights") { async fn a(_: E) {} } => "`3 fortnights` is no time"
    a_time_without_quotes (timeout = 30) { async fn a(_: E) {} } => "`timeout` takes a text"
    no_time_at_all (timeout = "0s") { async fn a(_: E) {} } => "a time that is not 0"
    a_start_from_an_unknown_time (start_from = "2026-02-30T00:00:00Z") { async fn a(_: E) {} } => "RFC 3339"
    a_start_from_before_1970 (start_from = "1969-12-31T23:59:59Z") { async fn a(_: E) {} } => "before 1970"
    a_third_policy (on_dead = "retry") { async fn a(_: E) {} } => "`on_dead` takes"
    an_order_that_is_no_truth (ordered = "no") { async fn a(_: E) {} } => "`true` or `false`"
    types_without_a_list (types = "a") { async fn a(_: E) {} } => "`types` takes a list"
    types_without_quotes (types = [A]) { async fn a(_: E) {} } => "`types` takes a list"
    no_types (types = []) { async fn a(_: E) {} } => "the handler would take nothing"
    a_type_twice (types = ["a", "b", "a"]) { async fn a(_: E) {} } => "listed twice"
    a_type_in_place_of_types (type = ["a"]) { async fn a(_: E) {} } => "did you mean `types`?"
    a_batch_of_none (batch = 0) { async fn a(_: Vec<Envelope<E>>) {} } => "`batch` takes a number from 1"
    an_extern_function () { async extern "C" fn a(_: E) {} } => "not `extern`"
    a_database_in_place_of_the_event () { async fn a(_: &mut Db) {} } => "put the event before it"
    a_first_parameter_by_reference_in_a_group () { async fn a(_: (&E)) {} } => "the first parameter is the event"
    a_nested_impl () { async fn a(_: E, _: State<Box<impl Send>>) {} } => "has a type with a name"
    a_constant () { const A: u8 = 1; } => "expected"
}

#[test]
fn a_function_survives_every_mistake() {
    let function = quote!(
        async fn a(_: &E) {}
    );
    let text = handler::attribute(quote!(typo), &function).to_string();
    assert_eq!(text.matches("compile_error").count(), 2, "{text}");
    assert!(text.contains(&function.to_string()) && text.contains("struct a"), "{text}");
}

#[test]
fn a_test_says_on_which_database_it_runs() {
    let says = |options, function: TokenStream, expected| {
        assert_says(&crate::test::attribute(options, &function), expected);
    };
    let none = TokenStream::new;
    says(
        none(),
        quote!(
            fn a(outbox: Outbox<Sqlite>) {}
        ),
        "write `async fn`",
    );
    says(
        none(),
        quote!(
            async fn a() {}
        ),
        "take an `outbox: Outbox<Sqlite>`",
    );
    says(
        none(),
        quote!(
            async fn a<DB>(outbox: Outbox<DB>) {}
        ),
        "name the database",
    );
    says(
        none(),
        quote!(
            async fn a(&self) {}
        ),
        "a test is no method",
    );
    says(
        quote!(typo),
        quote!(
            async fn a(outbox: Outbox<Sqlite>) {}
        ),
        "a test has no option `typo`",
    );
    says(
        none(),
        quote!(
            struct A;
        ),
        "expected",
    );
}
