//! The program may hold the drop-in libraries, and takes words for its linker from the one who packs it
//! (`HIGHWIRE_LINK_ARGS`); the library `highwire` needs nothing made here.

#[cfg(feature = "program")]
#[path = "build/embed.rs"]
mod embed;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "program")]
    {
        embed::write();
        println!("cargo::rerun-if-env-changed=HIGHWIRE_LINK_ARGS");
        for word in std::env::var("HIGHWIRE_LINK_ARGS").unwrap_or_default().split_whitespace() {
            println!("cargo::rustc-link-arg-bins={word}");
        }
    }
}
