"""The module against the command, and what it says when something is wrong.

Run by `cargo xtask test python`, in a virtual environment that has the wheel. HIGHWIRE_LAB names the command.
"""

import contextlib
import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

import highwire.sim as sim

LAB = os.environ["HIGHWIRE_LAB"]

PLAN = {
    "figure": "none",
    "title": 'a star with "quotes", a back\\slash and an ü',
    "claim": "c",
    "seeds": 2,
    "network": {"shape": "star", "hosts": 6},
    "workload": {"load": 0.4, "duration": "200us", "sizes": "small.cdf"},
    "axis": [{"key": "network.rate", "values": ["40Gbps", "100Gbps"]}],
    "scheme": [
        {"name": "IRN"},
        {"name": "RoCE, with PFC", "transport": {"protocol": "roce"}, "network": {"pfc": True}},
    ],
}
FILES = {"small.cdf": "100 0\n20000 100\n"}

#: Hours, if it were played to its end.
LONG = {
    "figure": "none",
    "title": "t",
    "claim": "c",
    "seeds": 100000,
    "workload": {"duration": "100us"},
    "scheme": [{"name": "IRN"}],
}

#: Says that it plays once its main thread is inside the call: a signal before that would be Python's own business.
CHILD = """
import json, linecache, signal, sys, threading
import highwire.sim as sim

# What runs in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def watch(main):
    while True:
        frame = sys._current_frames()[main]
        if "opened.play(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
            break
    print("playing", flush=True)

threading.Thread(target=watch, args=[threading.get_ident()], daemon=True).start()
try:
    sim.run(json.loads(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

#: Without timeouts, flows that lose their last packet never end; seeds decide which.
SOME_HANG = {
    "figure": "none",
    "title": "t",
    "claim": "c",
    "seeds": 8,
    "network": {"shape": "star", "hosts": 3, "pfc": True, "packet_loss": 0.005},
    "workload": {"pattern": "permutation", "bytes": "40KB", "time_limit": "2ms"},
    "scheme": [{"name": "RoCE", "transport": {"protocol": "roce"}}, {"name": "IRN"}],
}


@contextlib.contextmanager
def on_disk(plan=PLAN):
    """A folder with the plan and its files."""
    with tempfile.TemporaryDirectory() as folder:
        from highwire.sim._toml import dumps

        Path(folder, "star.toml").write_text(dumps(plan), encoding="utf-8")
        for name, text in FILES.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        yield Path(folder)


def command(folder, *words):
    done = subprocess.run([LAB, "sim", *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(table):
    """A table as the command writes it: text and numbers, a missing number as an empty field."""
    if not isinstance(table, dict):
        return [[field(value) for value in row] for row in table.itertuples(index=False)]
    columns = [values for name, values in table.items() if name != "run"]
    return [[field(value) for value in row] for row in zip(*columns)]


def field(value):
    # pandas has its own words for nothing.
    if value is None or str(value) in ("nan", "<NA>"):
        return ""
    return value if isinstance(value, str) else float(value)


def written(path):
    """The same of a file of the command's; every bit of a number counts."""
    with open(path, encoding="utf-8", newline="") as text:
        read = list(csv.reader(text))
    return read[0], read[1:]


class Results(unittest.TestCase):
    def assert_same(self, table, path):
        names, expected = written(path)
        self.assertEqual([name for name in table if name != "run"], names)
        found = rows(table)
        self.assertEqual(len(found), len(expected))
        self.assertGreater(len(found), 0)
        for ours, theirs in zip(found, expected):
            for name, mine, its in zip(names, ours, theirs):
                is_number = isinstance(mine, float)
                self.assertEqual(mine, float(its) if is_number else its, name)

    def test_a_dictionary_gives_what_the_command_gives(self):
        with on_disk() as folder:
            command(folder, "run", "star.toml", "--quiet", "--out", "out")
            of_file = sim.run(folder / "star.toml")
            self.assert_same(of_file, folder / "out/star/runs.csv")
            of_dictionary = sim.run(PLAN, files=FILES, threads=1)
            beside = sim.run(PLAN, folder=folder)
        # Only the name of the plan differs.
        self.assertEqual([row[1:] for row in rows(of_dictionary)], [row[1:] for row in rows(of_file)])
        self.assertEqual(rows(beside), rows(of_dictionary))
        self.assertEqual(set(of_dictionary["plan"]), {"plan"})

    def test_flows_are_the_commands(self):
        with on_disk() as folder:
            words = ["--scheme", "RoCE, with PFC", "--point", "100Gbps", "--seed", "2"]
            command(folder, "play", "star.toml", *words, "--flows", "flows.csv")
            table = sim.flows(folder / "star.toml", scheme="RoCE, with PFC", point="100Gbps", seed=2)
            self.assert_same(table, folder / "flows.csv")
            command(folder, "play", "star.toml", *words, "--scenario", "scenario.json")
            self.assert_same(sim.play(folder / "scenario.json"), folder / "flows.csv")
            self.assert_same(sim.play(json.loads((folder / "scenario.json").read_text())), folder / "flows.csv")

    def test_shards_join_to_the_whole(self):
        import pandas

        whole = sim.run(PLAN, files=FILES)
        parts = [sim.run(PLAN, files=FILES, shard=(part, 3)) for part in (3, 1, 2)]
        pandas.testing.assert_frame_equal(pandas.concat(parts).sort_index(), whole, check_exact=True)
        self.assertEqual(list(whole.index), list(range(8)))
        self.assertEqual(str(whole["fct_mean_s"].dtype), "float64")
        self.assertTrue(whole["rct_s"].isna().all(), "nothing of the kind was measured")

    def test_without_pandas_there_are_columns(self):
        whole = sim.run(PLAN, files=FILES)
        with mock.patch.dict(sys.modules, {"pandas": None}):
            columns = sim.run(PLAN, files=FILES)
        self.assertIsInstance(columns, dict)
        self.assertEqual(columns["run"], list(range(8)))
        self.assertEqual(rows(columns), rows(whole))
        self.assertIsNone(columns["rct_s"][0])

    def test_numbers_of_numpy_are_numbers(self):
        import numpy

        plan = dict(PLAN, seeds=numpy.int64(1), workload=dict(PLAN["workload"], load=numpy.float64(0.4)))
        self.assertEqual(len(sim.run(plan, files=FILES)), 4)

    def test_plans_that_come_with_it(self):
        self.assertIn("fig01", sim.plans())
        self.assertGreater(sim.check("fig01"), 0)
        self.assertIn("RoCE with PFC", sim.explain("experiments/irn/fig01.toml"))


class Mistakes(unittest.TestCase):
    def test_of_a_dictionary_have_their_key(self):
        plan = dict(PLAN, network={"shape": "star", "hots": 6})
        with self.assertRaises(sim.PlanError) as caught:
            sim.run(plan, files=FILES)
        error = caught.exception
        self.assertEqual((error.file, error.line, error.key), ("plan", None, "network.hots"))
        self.assertEqual(str(error), "`network.hots`: there is no such key; is it `hosts`?")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), vars(again)), (str(error), vars(error)))

    def test_of_a_file_have_their_line(self):
        with on_disk() as folder:
            path = folder / "wrong.toml"
            path.write_text('figure = "f"\ntitle = "t"\nclaim = "c"\n[network]\nspine = 4\n[[scheme]]\nname = "s"\n')
            with self.assertRaises(sim.PlanError) as caught:
                sim.check(path)
        error = caught.exception
        self.assertEqual((error.line, error.column, error.key), (5, 1, "network.spine"))
        self.assertTrue(error.file.endswith("wrong.toml"))
        self.assertIn(":5:1: `network.spine`", str(error))

    def test_of_meaning_are_mistakes_too(self):
        plan = dict(PLAN, network={"shape": "star", "hosts": 6, "packet_loss": 1.5})
        with self.assertRaises(sim.PlanError) as caught:
            sim.check(plan, files=FILES)
        self.assertEqual(caught.exception.key, "network.packet_loss")

    def test_of_values_have_their_path(self):
        for value in (None, object(), b"bytes", {1, 2}):
            plan = dict(PLAN, network={"shape": "star", "hosts": value})
            with self.assertRaises(sim.PlanError) as caught:
                sim.run(plan, files=FILES)
            self.assertEqual(caught.exception.key, "network.hosts")

    def test_what_is_odd_is_a_warning(self):
        plan = dict(PLAN, network={"shape": "star", "hosts": 6, "k": 8})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sim.check(plan, files=FILES)
        self.assertEqual([warning.category for warning in caught], [sim.Warning])
        self.assertIn("network.k", str(caught[0].message))

    def test_files_that_are_not_there(self):
        with self.assertRaisesRegex(sim.PlanError, "small.cdf"):
            sim.run(PLAN)
        with self.assertRaisesRegex(ValueError, "there is no file nothing.toml.*fig01"):
            sim.run("nothing.toml")

    def test_arguments(self):
        wrong = [dict(seeds=0), dict(shard=(4, 3)), dict(shard=(0, 1))]
        for arguments in wrong:
            with self.assertRaises(ValueError, msg=arguments):
                sim.run(PLAN, files=FILES, **arguments)
        with self.assertRaisesRegex(ValueError, "there is no scheme 'TCP'; there are IRN|there is no scheme \"TCP\"; there are IRN"):
            sim.flows(PLAN, files=FILES, scheme="TCP")
        with self.assertRaisesRegex(ValueError, "there is no point"):
            sim.flows(PLAN, files=FILES, point="1Gbps")
        with self.assertRaisesRegex(ValueError, "scenario: .*unknown field"):
            sim.play({"flow": []})
        with self.assertRaisesRegex(ValueError, "scenario: "):
            sim.play({"flows": [{"source": 0, "destination": 0, "bytes": 1}]})

    def test_runs_that_fail_are_named_and_the_others_kept(self):
        with self.assertRaises(sim.SimulationError) as caught:
            sim.run(SOME_HANG)
        error = caught.exception
        self.assertTrue(0 < len(error.failures) < 16, error.failures)
        self.assertEqual(len(error.result) + len(error.failures), 16)
        self.assertRegex(error.failures[0], "scheme RoCE, seed [0-9]: ")


class Waiting(unittest.TestCase):
    def test_progress_rises_to_the_end(self):
        seen = []
        sim.run(PLAN, files=FILES, progress=seen.append)
        self.assertEqual((seen[-1].share, seen[-1].runs, seen[-1].runs_total), (1.0, 8, 8))
        self.assertEqual([progress.runs for progress in seen], sorted(progress.runs for progress in seen))

    def test_an_exception_of_progress_ends_the_call(self):
        def give_up(_):
            raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            sim.run(LONG, progress=give_up)
        with self.assertRaisesRegex(KeyError, "enough"):
            sim.flows(dict(LONG, workload={"duration": "2ms"}), progress=give_up)

    def test_other_threads_go_on(self):
        # A lock that the other thread lets go of while runs are played: this would not end otherwise.
        went_on = threading.Event()
        other = threading.Thread(target=went_on.set)

        def start(_):
            if not other.ident:
                other.start()
            self.assertTrue(went_on.wait(60))

        sim.run(PLAN, files=FILES, progress=start)
        other.join(60)

    def test_an_interrupt_ends_the_call(self):
        words = [sys.executable, "-c", CHILD, json.dumps(LONG)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "playing\n")
                process.send_signal(signal.SIGINT)
                said, _ = process.communicate(timeout=120)
            finally:
                process.kill()
        self.assertEqual((said, process.returncode), ("interrupted\n", 0))


if __name__ == "__main__":
    unittest.main()
