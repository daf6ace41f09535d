//! ruapc with MessagePack, over TCP and over the verbs of any libibverbs. Both ends sleep in the kernel
//! between messages.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use comparisons_echo::{Book, PATIENCE, Report, Server as Answers, System, block_on, loops};
use ruapc::{Client, Context, Endpoint, ListenMode, Router, Server, SocketPoolConfig, Transport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The request and the response.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Bytes {
    #[serde(with = "serde_bytes")]
    #[schemars(with = "Vec<u8>")]
    bytes: Vec<u8>,
}

#[ruapc::service]
trait Echo {
    async fn echo(&self, context: &Context, request: &Bytes) -> ruapc::Result<Bytes>;
}

struct Answering(&'static Answers);

impl Echo for Answering {
    async fn echo(&self, _: &Context, request: &Bytes) -> ruapc::Result<Bytes> {
        let mut reply = request.clone();
        self.0.reply(&mut reply.bytes);
        Ok(reply)
    }
}

fn config(over: &str) -> Result<SocketPoolConfig> {
    let mut config = SocketPoolConfig { listen_mode: ListenMode::UNIFIED, ..SocketPoolConfig::default() };
    match over {
        "tcp" => config.rdma = None,
        "rdma" => {}
        _ => bail!("ruapc is asked over tcp and rdma, and not over {over}"),
    }
    Ok(config)
}

struct Ruapc;

impl System for Ruapc {
    fn serve(over: &str, answers: &'static Answers) -> Result<()> {
        block_on(async {
            let mut router = Router::default();
            Arc::new(Answering(answers)).ruapc_export(&mut router);
            let server = Server::create(router, &config(over)?)?;
            answers.is_at(server.listen("127.0.0.1:0".parse()?).await?);
            // The process that started this one ends it.
            std::future::pending().await
        })
    }

    fn call(over: &str, place: &str, book: Book) -> Result<Report> {
        block_on(async {
            let place = [place.parse().context("an address")?];
            let endpoint = match over {
                "tcp" => Endpoint::tcp(place)?,
                _ => Endpoint::rdma(Transport::TCP, place)?,
            };
            let context = Context::create(&config(over)?)?.with_endpoint(endpoint);
            let client = Client { timeout: PATIENCE, connect_timeout: PATIENCE, ..Client::default() };
            loops(book, move |bytes| {
                let (client, context) = (client.clone(), context.clone());
                async move {
                    let request = Bytes { bytes: bytes.to_vec() };
                    Ok(client.echo(&context, &request).await.context("a call failed")?.bytes)
                }
            })
            .await
        })
    }
}

fn main() -> ExitCode {
    comparisons_echo::run::<Ruapc>()
}
