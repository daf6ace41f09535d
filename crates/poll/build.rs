//! Words for the linker of this package alone, from the one who packs it: `HIGHWIRE_LINK_ARGS`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HIGHWIRE_LINK_ARGS");
    for word in std::env::var("HIGHWIRE_LINK_ARGS").unwrap_or_default().split_whitespace() {
        println!("cargo::rustc-link-arg={word}");
    }
}
