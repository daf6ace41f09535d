"""RDMA on any Linux machine: no card, no kernel module, no root.

The package brings the program `highwire` and the drop-in libraries that it gives to programs. Nothing of it is loaded
into Python: `highwire run -- python …` starts a process that has the libraries.
"""

from pathlib import Path
from pkgutil import extend_path

# `highwire.sim` is a package of its own, `highwire-sim`, and may lie in another folder.
__path__ = extend_path(__path__, __name__)

__all__ = ["PROGRAM", "LIBRARIES"]

#: The program.
PROGRAM = Path(__file__).parent / "bin" / "highwire"

#: The folder of the drop-in libraries, under their own names.
LIBRARIES = Path(__file__).parent / "lib" / "highwire"
