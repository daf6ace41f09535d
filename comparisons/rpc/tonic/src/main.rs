//! tonic: gRPC over HTTP/2, with one connection. Both ends have one thread, which sleeps in the kernel between messages.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use comparisons_echo::{Book, Report, Server, System, block_on, loops};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server as Grpc};
use tonic::{Request, Response, Status};

mod service {
    #![allow(missing_docs, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/highwire.comparisons.Echo.rs"));
}

use service::echo_client::EchoClient;
use service::echo_server::{Echo, EchoServer};

/// Requests that neither end refuses.
const UNDER_WAY_MAX: u32 = 1024;

/// The request and the response.
#[derive(Clone, PartialEq, prost::Message)]
struct Bytes {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

struct Answers(&'static Server);

#[tonic::async_trait]
impl Echo for Answers {
    async fn echo(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let mut message = request.into_inner();
        self.0.reply(&mut message.bytes);
        Ok(Response::new(message))
    }
}

struct Tonic;

impl System for Tonic {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        ensure!(over == "tcp", "tonic is asked over tcp, and not over {over}");
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            server.is_at(listener.local_addr()?);
            // Without it replies would wait for others.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let grpc = Grpc::builder().max_concurrent_streams(UNDER_WAY_MAX);
            Ok(grpc.serve_with_incoming(EchoServer::new(Answers(server)), incoming).await?)
        })
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        ensure!(over == "tcp", "tonic is asked over tcp, and not over {over}");
        block_on(async {
            let channel =
                Endpoint::from_shared(format!("http://{place}"))?.tcp_nodelay(true).connect().await?;
            let client = EchoClient::new(channel);
            loops(book, move |bytes| {
                let mut client = client.clone();
                async move {
                    let reply =
                        client.echo(Bytes { bytes: bytes.to_vec() }).await.context("a call failed")?;
                    Ok(reply.into_inner().bytes)
                }
            })
            .await
        })
    }
}

fn main() -> ExitCode {
    comparisons_echo::run::<Tonic>()
}
