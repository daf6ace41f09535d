//! The program may hold the drop-in libraries; the library `highwire` needs nothing made here.

#[cfg(feature = "program")]
#[path = "build/embed.rs"]
mod embed;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "program")]
    embed::write();
}
