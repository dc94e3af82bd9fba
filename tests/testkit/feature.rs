//! Nothing of the helpers is in a program that does not ask for them.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn the_feature_is_off_by_default_and_brings_a_library_along() {
    let tree = |more: &[&str]| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(root()).args([
            "tree",
            "--offline",
            "-p",
            "outbox",
            "-e",
            "normal",
            "--prefix",
            "none",
        ]);
        let output = command.args(more).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!tree(&[]).contains("tempfile "));
    assert!(tree(&["--features", "testing"]).contains("tempfile "));
}

#[test]
fn every_part_of_it_is_behind_the_feature() {
    for (file, items) in [
        ("lib.rs", &["pub mod testing;", "pub use outbox_macros::test;", "pub use crate::testing::"][..]),
        ("backend.rs", &["pub(crate) trait Testing"]),
        ("backend/sqlite.rs", &["mod testing;"]),
        ("backend/postgres.rs", &["mod testing;"]),
        ("backend/mysql.rs", &["mod testing;"]),
        ("config.rs", &["clock: Option<", "fn with_clock"]),
    ] {
        let text = fs::read_to_string(root().join("outbox/src").join(file)).expect("it is there");
        for item in items {
            let at = text.find(item).unwrap_or_else(|| panic!("{file} has no `{item}`"));
            let above: Vec<_> = text[..at].lines().rev().take(4).collect();
            let behind =
                above.iter().any(|line| line.contains("#[cfg(") && line.contains(r#"feature = "testing""#));
            assert!(behind, "{file}: `{item}` is not behind the feature");
        }
    }
}
