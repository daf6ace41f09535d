"""Writes with Mooncake's transfer engine from one process to another over all cards, and reads back what was written.

With `target` it is the other process, which the first one starts.
"""

import subprocess
import sys

from mooncake.engine import TransferEngine

BYTES = 1 << 16
WRITES = 100
HOST = "127.0.0.1"


def engine():
    made = TransferEngine()
    if made.initialize(HOST, "P2PHANDSHAKE", "rdma", "") != 0:
        sys.exit("the engine does not begin")
    return made


def target():
    made = engine()
    place = made.allocate_managed_buffer(BYTES)
    print("target", f"{HOST}:{made.get_rpc_port()}", place, flush=True)
    sys.stdin.read()


def initiator():
    command = [sys.executable, __file__, "target"]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    words = next(line for line in peer.stdout if line.startswith("target ")).split()
    session, remote = words[1], int(words[2])
    made = engine()
    here, back = made.allocate_managed_buffer(BYTES), made.allocate_managed_buffer(BYTES)
    failed = []
    for number in range(1, WRITES + 1):
        content = bytes([number % 251]) * BYTES
        made.write_bytes_to_buffer(here, content, BYTES)
        result = made.transfer_sync_write(session, here, remote, BYTES)
        result = result or made.transfer_sync_read(session, back, remote, BYTES)
        if result == 0 and bytes(made.read_bytes_from_buffer(back, BYTES)) != content:
            result = "OTHER BYTES"
        if result != 0:
            failed.append(number)
            print(f"write {number}: {result}", flush=True)
    print(f"{WRITES - len(failed)} of {WRITES} writes were read back", flush=True)
    peer.stdin.close()
    peer.wait()


target() if sys.argv[1:] == ["target"] else initiator()
