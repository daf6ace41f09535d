"""A sweep on a Dask cluster of two workers: each plays parts of a plan, and the parts are joined to one table.

$ python sweep_dask.py
"""

import pandas
from dask.distributed import Client, LocalCluster, as_completed

import highwire.sim as sim

PLAN = {
    "figure": "an example",
    "title": "IRN against RoCE, by load",
    "claim": "RoCE with PFC has the larger slowdown",
    "seeds": 3,
    "network": {"shape": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 4},
    "workload": {"duration": "500us"},
    "axis": [{"key": "workload.load", "values": [0.3, 0.6]}],
    "scheme": [
        {"name": "IRN"},
        {"name": "RoCE with PFC", "transport": {"protocol": "roce"}, "network": {"pfc": True}},
    ],
}

#: More parts than workers, so that none waits for a slow one.
PARTS = 4


def part(number):
    return sim.run(PLAN, shard=(number, PARTS), threads=1)


def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        futures = client.map(part, range(1, PARTS + 1), pure=False)
        tables = [table for _, table in as_completed(futures, with_results=True)]
    runs = pandas.concat(tables).sort_index()
    # What workers have played is what one process plays, bit for bit.
    pandas.testing.assert_frame_equal(runs, sim.run(PLAN), check_exact=True)
    measures = runs.groupby(["point", "scheme"])["slowdown_mean"].agg(["mean", "std", "count"])
    print(measures.to_string())


if __name__ == "__main__":
    main()
