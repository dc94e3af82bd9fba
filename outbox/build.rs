//! Nothing to build: the script exists because `links` in the manifest needs one.

fn main() {}
