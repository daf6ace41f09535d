"""Starts InfiniStore's server, writes blocks to its cache by RDMA from memory that is registered, and reads them back into other memory.

The same blocks are read over the server's own TCP, so that what RDMA has placed is seen by another way too.
"""

import asyncio
import socket
import subprocess
import sys
import time

import infinistore
import numpy

BLOCK = 64 << 10
BLOCKS = 64
ROUNDS = 4
PATIENCE = 60
# Its own main, but for a step that needs a privilege: it asks the kernel to spare it when memory runs out.
SERVER = "import infinistore.server as server; server.prevent_oom = lambda: None; server.main()"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def server(port):
    words = "--dev-name hw0 --link-type Ethernet --prealloc-size 1 --log-level error --host 127.0.0.1"
    ports = ["--service-port", str(port), "--manage-port", str(free_port())]
    started = subprocess.Popen([sys.executable, "-c", SERVER, *words.split(), *ports])
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and started.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return started
        except OSError:
            time.sleep(0.05)
    started.kill()
    sys.exit("the server does not begin")


def connect(port):
    config = infinistore.ClientConfig(
        host_addr="127.0.0.1",
        service_port=port,
        link_type=infinistore.LINK_ETHERNET,
        dev_name="hw0",
        connection_type=infinistore.TYPE_RDMA,
    )
    connection = infinistore.InfinityConnection(config)
    connection.connect()
    return connection


async def play(connection, other):
    here = numpy.zeros(BLOCK * BLOCKS, dtype=numpy.uint8)
    back = numpy.zeros(BLOCK * BLOCKS, dtype=numpy.uint8)
    for memory in (here, back):
        connection.register_mr(memory.ctypes.data, memory.nbytes)
    read = 0
    for number in range(ROUNDS):
        here[:] = numpy.random.default_rng(number).integers(0, 256, here.size, dtype=numpy.uint8)
        blocks = [(f"{number}-{block}", block * BLOCK) for block in range(BLOCKS)]
        await connection.rdma_write_cache_async(blocks, BLOCK, here.ctypes.data)
        back[:] = 0
        await connection.rdma_read_cache_async(blocks, BLOCK, back.ctypes.data)
        parts = zip(here.reshape(BLOCKS, BLOCK), back.reshape(BLOCKS, BLOCK), blocks)
        for written, returned, (key, _) in parts:
            by_tcp = numpy.asarray(other.tcp_read_cache(key), dtype=numpy.uint8)
            read += bool((written == returned).all() and (written == by_tcp).all())
    print(f"{read} of {ROUNDS * BLOCKS} blocks were read back by RDMA and by TCP", flush=True)


def main():
    port = free_port()
    started = server(port)
    try:
        tcp = infinistore.ClientConfig(
            host_addr="127.0.0.1", service_port=port, connection_type=infinistore.TYPE_TCP
        )
        other = infinistore.InfinityConnection(tcp)
        other.connect()
        connection = connect(port)
        asyncio.run(play(connection, other))
        # Its threads do not end without.
        connection.close()
        other.close()
    finally:
        started.kill()
        started.wait()


main()
