"""`python -m highwire`: the program, in this process's place."""

import os
import sys

from . import PROGRAM


def main():
    """Become the program: same process, same terminal, its exit status."""
    try:
        os.execv(PROGRAM, ["highwire", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"highwire: {PROGRAM}: {error.strerror}")


if __name__ == "__main__":
    main()
