"""Simulated networks of RDMA cards: plans in, tables out.

A plan is a dictionary or the path of a TOML file, or the name of one that comes with the package::

    import highwire.sim as sim

    runs = sim.run("fig01", seeds=3)                    # a row per run
    flows = sim.flows("fig01", scheme="IRN", seed=1)    # a row per flow of one run

The tables are pandas DataFrames if pandas is installed, and dictionaries of lists otherwise. The same plan gives the
same numbers, bit for bit, as ``highwire sim run``.
"""

from ._errors import PlanError, SimulationError, Warning
from ._plans import check, explain, plans
from ._run import Progress, flows, play, run, scenario

__all__ = [
    "PlanError",
    "Progress",
    "SimulationError",
    "Warning",
    "check",
    "explain",
    "flows",
    "plans",
    "play",
    "run",
    "scenario",
]
