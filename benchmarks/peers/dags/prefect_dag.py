"""`python prefect_dag.py WIDTH DEPTH`: a flow of tasks, with the local server that Prefect starts by itself."""

import json
import sys
import time

from prefect import flow, task


@task
def identity(value):
    return value


@flow
def layered(width, depth):
    layer = [identity.submit(column) for column in range(width)]
    for _ in range(depth - 1):
        layer = [
            identity.submit(layer[column], wait_for=[layer[(column + 1) % width]]) for column in range(width)
        ]
    return [future.result() for future in layer]


def main():
    width, depth = map(int, sys.argv[1:])
    # The first flow waits for the server to start.
    layered(2, 2)
    began = time.monotonic()
    values = layered(width, depth)
    print(json.dumps({"began": began, "ended": time.monotonic(), "values": values}), flush=True)


if __name__ == "__main__":
    main()
