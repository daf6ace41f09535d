//! iceoryx2's requests and responses: loaned places in shared memory, which go without a copy. Both ends poll. It knows one machine only and no
//! loss, so it is a bound for what an RPC through shared memory can be.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use comparisons_echo::{Book, PATIENCE, Report, SIZE, Server, System};
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory;

/// Polls of a client between two looks at the clock.
const POLLS_PER_LOOK: u32 = 1 << 16;
/// Polls of a server between two checks whether it must end.
const POLLS_PER_STOP: u32 = 1 << 12;

type Bytes = [u8; SIZE];
type Service = PortFactory<ipc::Service, Bytes, (), Bytes, ()>;

fn open(node: &Node<ipc::Service>, name: &str, window: u32) -> Result<Service> {
    let name: ServiceName = name.try_into().ok().with_context(|| format!("`{name}` is no service"))?;
    let window = window as usize;
    let builder = node.service_builder(&name).request_response::<Bytes, Bytes>();
    let builder = builder.max_active_requests_per_client(window).max_loaned_requests(window.min(16));
    let builder = builder.enable_safe_overflow_for_requests(false).enable_safe_overflow_for_responses(false);
    Ok(builder.max_response_buffer_size(1).max_clients(1).max_servers(1).max_nodes(2).open_or_create()?)
}

fn node() -> Result<Node<ipc::Service>> {
    // It prints errors only: other output would stand where the address is expected.
    set_log_level(LogLevel::Error);
    // Signals are left to the system.
    Ok(NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>()?)
}

struct Iceoryx;

impl System for Iceoryx {
    fn serve(over: &str, server: &'static Server) -> Result<()> {
        ensure!(over == "shm", "iceoryx2 is asked over shm, and not over {over}");
        let node = node()?;
        let name = format!("highwire/echo/{}", std::process::id());
        let service = open(&node, &name, server.window)?;
        let port = service.server_builder().create()?;
        server.is_at(&name);
        while !server.is_over() {
            for _ in 0..POLLS_PER_STOP {
                let Some(request) = port.receive()? else { continue };
                let mut reply = *request.payload();
                server.reply(&mut reply);
                request.loan_uninit()?.write_payload(reply).send()?;
            }
        }
        Ok(())
    }

    /// A server answers in the order of the requests.
    fn call(_over: &str, place: &str, mut book: Book) -> Result<Report> {
        let node = node()?;
        let service = open(&node, place, book.window())?;
        let client = service.client_builder().create()?;
        let ask = |request: &comparisons_echo::Request| {
            anyhow::Ok(client.loan_uninit()?.write_payload(request.bytes).send()?)
        };
        let mut under_way = VecDeque::new();
        for _ in 0..book.window() {
            let request = book.request().context("the turn has hardly begun")?;
            under_way.push_back((request, ask(&request)?));
        }
        let (mut polls, mut since) = (0_u32, None);
        while let Some((request, pending)) = under_way.front() {
            let Some(reply) = pending.receive()? else {
                polls += 1;
                if polls.is_multiple_of(POLLS_PER_LOOK)
                    && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
                {
                    bail!("no reply for {PATIENCE:?}");
                }
                continue;
            };
            book.answered(request, reply.payload())?;
            drop(reply);
            under_way.pop_front();
            (polls, since) = (0, None);
            let Some(next) = book.request() else { break };
            under_way.push_back((next, ask(&next)?));
        }
        book.report()
    }
}

fn main() -> ExitCode {
    comparisons_echo::run::<Iceoryx>()
}
