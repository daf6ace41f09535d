//! tarpc with bincode. Both ends have one thread, which sleeps in the kernel between messages.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use comparisons_echo::{Book, PATIENCE, Report, SIZE, Server, System, block_on, loops};
use futures::StreamExt as _;
use tarpc::client::Config;
use tarpc::context::{self, Context};
use tarpc::serde_transport::{tcp, unix};
use tarpc::server::{Channel as _, Config as ServerConfig};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{ClientMessage, Transport};
use tokio::task::spawn_local;

/// Requests that neither end refuses.
const UNDER_WAY_MAX: usize = 1024;

#[tarpc::service]
trait Echo {
    async fn echo(bytes: [u8; SIZE]) -> [u8; SIZE];
}

#[derive(Clone)]
struct Answers(&'static Server);

impl Echo for Answers {
    async fn echo(self, _: Context, mut bytes: [u8; SIZE]) -> [u8; SIZE] {
        self.0.reply(&mut bytes);
        bytes
    }
}

struct Tarpc;

impl System for Tarpc {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        block_on(async {
            match over {
                "tcp" => {
                    let mut listener = tcp::listen("127.0.0.1:0", Bincode::default).await?;
                    server.is_at(listener.local_addr());
                    while let Some(transport) = listener.next().await {
                        let transport = transport?;
                        transport.get_ref().set_nodelay(true)?;
                        answer(transport, server).await;
                    }
                }
                "unix" => {
                    let path = socket();
                    let mut listener = unix::listen(&path, Bincode::default).await?;
                    server.is_at(path.display());
                    while let Some(transport) = listener.next().await {
                        answer(transport?, server).await;
                    }
                }
                _ => bail!("tarpc is asked over tcp and unix, and not over {over}"),
            }
            Ok(())
        })
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        block_on(async {
            let mut config = Config::default();
            (config.max_in_flight_requests, config.pending_request_buffer) = (UNDER_WAY_MAX, UNDER_WAY_MAX);
            let client = match over {
                "tcp" => {
                    let transport = tcp::connect(place, Bincode::default).await?;
                    transport.get_ref().set_nodelay(true)?;
                    EchoClient::new(config, transport).spawn()
                }
                "unix" => {
                    let transport = unix::connect(place, Bincode::default).await?;
                    // The only client has come: no other process needs the name.
                    let _ = std::fs::remove_file(place);
                    EchoClient::new(config, transport).spawn()
                }
                _ => bail!("tarpc is asked over tcp and unix, and not over {over}"),
            };
            let client = Arc::new(client);
            loops(book, move |bytes| {
                let client = Arc::clone(&client);
                async move {
                    let mut context = context::current();
                    context.deadline = std::time::Instant::now() + PATIENCE;
                    Ok(client.echo(context, bytes).await.context("a call failed")?.to_vec())
                }
            })
            .await
        })
    }
}

/// Until the client goes; each request is a task, as in tarpc's own examples.
async fn answer<T>(transport: T, server: &'static Server)
where
    T: Transport<tarpc::Response<EchoResponse>, ClientMessage<EchoRequest>> + 'static,
{
    let config = ServerConfig { pending_response_buffer: UNDER_WAY_MAX };
    let requests = config.channel(transport).execute(Answers(server).serve());
    requests
        .for_each(|request| async {
            spawn_local(request);
        })
        .await;
}

fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("echo-tarpc-{}", std::process::id()))
}

fn main() -> ExitCode {
    comparisons_echo::run::<Tarpc>()
}
