//! Expansions in hostile surroundings: nothing of a prelude, other things under the usual names, every lint on.
//!
//! What this file checks is that it compiles, and that clippy finds nothing in it.

#![forbid(unsafe_code)]
#![deny(
    warnings,
    absolute_paths_not_starting_with_crate,
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    keyword_idents,
    let_underscore_drop,
    macro_use_extern_crate,
    meta_variable_misuse,
    missing_copy_implementations,
    missing_debug_implementations,
    missing_docs,
    non_ascii_idents,
    redundant_lifetimes,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unreachable_pub,
    unused_import_braces,
    unused_lifetimes,
    unused_macro_rules,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::allow_attributes_without_reason,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::default_numeric_fallback,
    clippy::else_if_without_else,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_docs_in_private_items,
    clippy::panic,
    clippy::str_to_string,
    clippy::unneeded_field_pattern,
    clippy::unreachable,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]

mod generated;
#[no_implicit_prelude]
#[allow(dead_code, reason = "names are only in the way here")]
pub mod hostile;

#[test]
fn hostile_handlers_are_found() {
    use outbox::__private::{HandlerEntry, inventory};
    let entries = inventory::iter::<HandlerEntry>().filter_map(HandlerEntry::of::<sqlx::Sqlite>);
    let mut names: Vec<_> = entries.map(|entry| entry.name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["audit", "by_macro", "by_macro_in", "ctx", "generic", "some", "states", "with_everything"]
    );
}

/// The catalogue as a user keeps it. With a new event: `UPDATE_EVENT_CATALOG=1 cargo test -p outbox-tests --test hygiene`.
#[test]
fn event_types_are_a_contract() {
    outbox::assert_event_catalog!("hygiene/events.txt", hostile::OrderPaid<hostile::Usd, 7>);
}
