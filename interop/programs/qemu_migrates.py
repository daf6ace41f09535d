"""Moves a running machine from one QEMU to another by its `rdma:` transport, and asks both how it ended.

Usage: qemu_migrates.py FOLDER PORT
"""

import json
import socket
import subprocess
import sys
import time

SECONDS_MAX = 60
folder, port = sys.argv[1:]
uri = f"rdma:127.0.0.1:{port}"


class Machine:
    """A QEMU without a disk, under software emulation."""

    def __init__(self, name, *more):
        path = f"{folder}/{name}.sock"
        words = ["-machine", "q35,accel=tcg", "-m", "64", "-display", "none", "-nodefaults"]
        control = ["-qmp", f"unix:{path},server=on,wait=off"]
        self.process = subprocess.Popen(["qemu-system-x86_64", *words, *control, *more])
        self.file = self.connect(path).makefile("rw")
        self.file.readline()
        self.ask("qmp_capabilities")

    @staticmethod
    def connect(path):
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                made = socket.socket(socket.AF_UNIX)
                made.settimeout(SECONDS_MAX)
                made.connect(path)
                return made
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def ask(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                sys.exit(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def end(self):
        self.ask("quit")
        self.process.wait(SECONDS_MAX)


there, here = Machine("there", "-incoming", uri), Machine("here")
here.ask("migrate", uri=uri)
deadline = time.monotonic() + SECONDS_MAX
while (state := here.ask("query-migrate").get("status")) not in ("completed", "failed"):
    if time.monotonic() > deadline:
        sys.exit(f"the migration is {state}")
    time.sleep(0.1)
states = there.ask("query-status")["status"], here.ask("query-status")["status"]
print(f"{state}: {states}")
if (state, *states) == ("completed", "running", "postmigrate"):
    print("it runs at the other end")
here.end()
there.end()
