"""Writes with NIXL from one process to another over UCX's rails, and says what became of each.

With `target` it is the other process, which the first one starts.
"""

import subprocess
import sys
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

BYTES = 1 << 20
WRITES = 200
SECONDS_MAX = 30


def agent(name):
    made = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = np.zeros(BYTES, dtype=np.uint8)
    place = (memory.ctypes.data, BYTES, 0)
    made.register_memory([(*place, "")], "DRAM")
    return made, memory, place


def target():
    made, memory, place = agent("target")
    print("target", place[0], made.get_agent_metadata().hex(), flush=True)
    for line in sys.stdin:
        print("sum", int(memory.sum()), flush=True)


def write(made, handle):
    """The state in which a transfer ends, or what it raises."""
    deadline = time.monotonic() + SECONDS_MAX
    try:
        state = made.transfer(handle)
        while state == "PROC" and time.monotonic() < deadline:
            state = made.check_xfer_state(handle)
    except Exception as error:
        return type(error).__name__
    return "no end" if state == "PROC" else state


def initiator():
    command = [sys.executable, __file__, "target"]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    words = next(line for line in peer.stdout if line.startswith("target ")).split()
    made, memory, place = agent("initiator")
    name = made.add_remote_agent(bytes.fromhex(words[2]))
    here = made.get_xfer_descs([place], "DRAM")
    there = made.get_xfer_descs([(int(words[1]), BYTES, 0)], "DRAM")
    last, first = None, 0
    for number in range(1, WRITES + 1):
        memory[:] = number % 251
        handle = made.initialize_xfer("WRITE", here, there, name)
        state = write(made, handle)
        if state != last:
            print(f"write {number}: {state}", flush=True)
            last, first = state, number
        if state != "DONE":
            break
    if last == "DONE":
        peer.stdin.write("\n")
        peer.stdin.flush()
        answer = next(line for line in peer.stdout if line.startswith("sum "))
        whole = int(answer.split()[1]) == (WRITES % 251) * BYTES
        print(f"{WRITES} writes; the last {'is there' if whole else 'IS NOT THERE'}", flush=True)
    peer.kill()


target() if sys.argv[1:] == ["target"] else initiator()
