//! An echo service. `cargo run --example echo` serves and prints its address; `cargo run --example echo ADDRESS WORDS…` asks it.

use highwire_host::rpc::{Node, RequestType, Rpc, RpcConfig};
use highwire_host::{Device, DeviceConfig};
use std::error::Error;

const ECHO: RequestType = RequestType(1);
const SERVER: Node = Node(0);

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(&DeviceConfig::default())?;
    let mut words = std::env::args().skip(1);
    let Some(address) = words.next() else {
        let mut rpc = Rpc::open(&device, RpcConfig::new(SERVER))?;
        rpc.register(ECHO, |request, response| response.write(request.bytes));
        println!("{}", rpc.address());
        rpc.serve();
    };
    let mut rpc = Rpc::open(&device, RpcConfig::new(Node(std::process::id() as u16 | 1)))?;
    rpc.connect(SERVER, &address.parse()?)?;
    rpc.block_on(|worker| async move {
        for word in words {
            let reply = worker.call(SERVER, ECHO, word.as_bytes()).await?;
            println!("{}", String::from_utf8_lossy(&reply));
        }
        Ok(())
    })?
}
