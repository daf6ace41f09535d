"""Two ranks of MPI send each other messages of three sizes, each of which takes another protocol, and check every byte."""

from mpi4py import MPI

ROUNDS = 20
SIZES = (8, 1 << 16, 1 << 22)

world = MPI.COMM_WORLD
for size in SIZES:
    content = bytearray((at * 7 + size) % 251 for at in range(size))
    for _ in range(ROUNDS):
        back = bytearray(size)
        if world.rank == 0:
            world.Send(content, 1)
            world.Recv(back, 1)
        else:
            world.Recv(back, 0)
            world.Send(back, 0)
        if back != content:
            world.Abort(1)
if world.rank == 0:
    version = MPI.Get_library_version().splitlines()[0]
    print(f"all came back: {version}", flush=True)
