//! The code of the interface, by Cap'n Proto's compiler, which Debian has in its package capnproto.

fn main() -> Result<(), capnp::Error> {
    capnpc::CompilerCommand::new().src_prefix("src").file("src/echo.capnp").run()
}
