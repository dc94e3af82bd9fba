//! What the compiler says of mistakes: one in each file of `fail`, and none in those of `pass`.
//!
//! The texts are those of one compiler. After a change of it, or of a message:
//! `TRYBUILD=overwrite cargo test -p outbox-tests --test ui`, and read the difference.

#[test]
fn mistakes_are_explained_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
    cases.pass("ui/pass/*.rs");
}
