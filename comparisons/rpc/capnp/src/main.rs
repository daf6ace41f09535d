//! Cap'n Proto's RPCs, with one connection. Both ends have one thread, which sleeps in the kernel between messages.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::{RpcSystem, new_client};
use comparisons_echo::{Book, Report, Server, System, block_on, loops};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::spawn_local;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

mod echo_capnp {
    #![allow(missing_docs, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/echo_capnp.rs"));
}

use echo_capnp::echo;

struct Answers(&'static Server);

impl echo::Server for Answers {
    async fn echo(
        self: Rc<Self>,
        params: echo::EchoParams,
        mut results: echo::EchoResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let bytes = params.get_bytes()?;
        let reply = results.get().init_bytes(bytes.len() as u32);
        reply.copy_from_slice(bytes);
        self.0.reply(reply);
        Ok(())
    }
}

struct CapnProto;

impl System for CapnProto {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        block_on(async {
            match over {
                "tcp" => {
                    let listener = TcpListener::bind("127.0.0.1:0").await?;
                    server.is_at(listener.local_addr()?);
                    loop {
                        let (stream, _) = listener.accept().await?;
                        stream.set_nodelay(true)?;
                        answer(stream, server).await;
                    }
                }
                "unix" => {
                    let path = socket();
                    let listener = UnixListener::bind(&path)?;
                    server.is_at(path.display());
                    loop {
                        answer(listener.accept().await?.0, server).await;
                    }
                }
                _ => bail!("Cap'n Proto is asked over tcp and unix, and not over {over}"),
            }
        })
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        block_on(async {
            let client = match over {
                "tcp" => {
                    let stream = TcpStream::connect(place).await?;
                    stream.set_nodelay(true)?;
                    connect(stream)
                }
                "unix" => {
                    let stream = UnixStream::connect(place).await?;
                    // The only client has come: no other process needs the name.
                    let _ = std::fs::remove_file(place);
                    connect(stream)
                }
                _ => bail!("Cap'n Proto is asked over tcp and unix, and not over {over}"),
            };
            loops(book, move |bytes| {
                let mut request = client.echo_request();
                request.get().set_bytes(&bytes);
                async move {
                    let reply = request.send().promise.await.context("a call failed")?;
                    Ok(reply.get()?.get_bytes()?.to_vec())
                }
            })
            .await
        })
    }
}

fn network(
    stream: impl AsyncRead + AsyncWrite + 'static,
    side: Side,
) -> Box<VatNetwork<impl futures::AsyncRead + Unpin>> {
    let (reader, writer) = tokio::io::split(stream);
    Box::new(VatNetwork::new(reader.compat(), writer.compat_write(), side, Default::default()))
}

/// Until the client goes.
async fn answer(stream: impl AsyncRead + AsyncWrite + 'static, server: &'static Server) {
    let client: echo::Client = new_client(Answers(server));
    let _ = RpcSystem::new(network(stream, Side::Server), Some(client.client)).await;
}

fn connect(stream: impl AsyncRead + AsyncWrite + 'static) -> echo::Client {
    let mut system = RpcSystem::new(network(stream, Side::Client), None);
    let client = system.bootstrap(Side::Server);
    spawn_local(system);
    client
}

fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("echo-capnp-{}", std::process::id()))
}

fn main() -> ExitCode {
    comparisons_echo::run::<CapnProto>()
}
