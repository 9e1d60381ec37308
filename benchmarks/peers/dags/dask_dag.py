"""`python dask_dag.py WIDTH DEPTH`: delayed calls on the distributed scheduler, in threads. Nothing is kept on disk."""

import json
import sys
import time

import dask
from distributed import Client, LocalCluster


def identity(value, _other=None):
    return value


def layered(client, width, depth):
    call = dask.delayed(identity, pure=False)
    layer = [call(column) for column in range(width)]
    for _ in range(depth - 1):
        layer = [call(layer[column], layer[(column + 1) % width]) for column in range(width)]
    return list(client.gather(client.compute(layer)))


def main():
    width, depth = map(int, sys.argv[1:])
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        layered(client, 2, 2)
        began = time.monotonic()
        values = layered(client, width, depth)
        print(json.dumps({"began": began, "ended": time.monotonic(), "values": values}), flush=True)


if __name__ == "__main__":
    main()
