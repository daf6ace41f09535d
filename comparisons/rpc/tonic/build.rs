//! The code of the gRPC service, from a description in Rust: it needs no compiler of another language.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("crate::Bytes")
        .output_type("crate::Bytes")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder().name("Echo").package("highwire.comparisons").method(echo).build();
    Builder::new().compile(&[service]);
}
