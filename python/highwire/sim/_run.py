"""Playing plans and scenarios."""

import json
import os
from typing import NamedTuple

from . import _sim
from ._errors import SimulationError
from ._plans import Source


class Progress(NamedTuple):
    """How far a call is."""

    #: Between 0 and 1, by the bytes that flows carry.
    share: float
    #: Runs that are over.
    runs: int
    #: Runs in all; equal ones are played once.
    runs_total: int


def run(plan, *, seeds=None, full=False, threads=None, shard=None, progress=None, folder=None, files=None):
    """Plays every run of a plan.

    Args:
        plan: A dictionary with the keys of a plan, the path of a TOML file, or a name from :func:`plans`.
        seeds: How often each combination is played, instead of what the plan says.
        full: At the paper's scale.
        threads: Runs at once; as many as there are cores by default. Results do not depend on it.
        shard: ``(i, n)`` plays only the i-th of n parts, for workers of a cluster; counted from 1.
        progress: Called now and then with a :class:`Progress`. An exception of it ends the call.
        folder: Where files lie that the plan names; by default beside the plan.
        files: Such files by name, with their text. They go before those in the folder.

    Returns:
        A row per run: plan, point, scheme, seed, every parameter, every measure, the run's fingerprint. The index, or
        the column ``run`` without pandas, is the run's place in the plan, so shards can be joined and sorted.

    Raises:
        PlanError: the plan is wrong.
        SimulationError: runs have no outcome. Its ``result`` has the others.
        KeyboardInterrupt: the call ends within moments; nothing is returned.
    """
    opened = Source(plan, folder, files).open(full, seeds)
    call = None
    if progress is not None:
        def call(share, runs, runs_total):
            progress(Progress(share, runs, runs_total))
    part = None if shard is None else _shard(shard)
    columns, places, failures = opened.play(threads or 0, part, call)
    table = _table(columns, places)
    if failures:
        raise SimulationError("; ".join(failures), failures, table)
    return table


def flows(plan, *, scheme=None, point=None, seed=None, full=False, progress=None, folder=None, files=None):
    """Plays one run of a plan and returns a row per flow.

    Args:
        scheme: The scheme's name; the plan's first by default.
        point: The point's name, as in the column ``point`` of :func:`run`; the first by default.
        seed: The seed; the plan's first by default.
    """
    text = scenario(plan, scheme=scheme, point=point, seed=seed, full=full, folder=folder, files=files)
    return play(text, progress=progress)


def scenario(plan, *, scheme=None, point=None, seed=None, full=False, folder=None, files=None):
    """One run of a plan as a scenario: a dictionary that :func:`play` takes, with every flow."""
    opened = Source(plan, folder, files).open(full, None)
    return json.loads(opened.scenario(scheme, point, seed))


def play(scenario, *, progress=None):
    """Plays a scenario and returns a row per flow.

    Args:
        scenario: A dictionary, or the path of a JSON file, as ``highwire sim play`` takes it.
        progress: Called now and then with a :class:`Progress`.
    """
    if isinstance(scenario, dict):
        file, text = "scenario", json.dumps(scenario)
    else:
        file = os.fspath(scenario)
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    call = None
    if progress is not None:
        def call(share):
            progress(Progress(share, int(share >= 1), 1))
    return _table(_sim.play_scenario(file, text, call), None)


def _shard(shard):
    number, of = shard
    return f"{number}/{of}"


def _table(columns, places):
    """A DataFrame, or columns by name without pandas."""
    try:
        import pandas
    except ImportError:
        table = {} if places is None else {"run": places}
        table.update({name: values for name, _, values in columns})
        return table
    index = None if places is None else pandas.Index(places, dtype="int64", name="run")
    series = {name: pandas.Series(values, index=index, dtype=kind) for name, kind, values in columns}
    return pandas.DataFrame(series, index=index)
