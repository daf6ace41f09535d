"""RDMA on any Linux machine: no card, no kernel module, no root.

The package brings the program `highwire` and the drop-in libraries that it gives to programs. Nothing of it is loaded
into Python: `highwire run -- python …` starts a process that has the libraries.
"""

from pathlib import Path

__all__ = ["PROGRAM", "LIBRARIES"]

#: The program.
PROGRAM = Path(__file__).parent / "bin" / "highwire"

#: The folder of the drop-in libraries, under their own names.
LIBRARIES = Path(__file__).parent / "lib" / "highwire"
