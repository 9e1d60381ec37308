"""A Ray cluster on loopback for a test, in an environment that has Ray: a head without room for work, and nodes.

Prints its address, then obeys lines: `add`, `kill N`, `freeze N` and `thaw N` for the N-th node, `restart` for a new
cluster at the same address, and `end`; says `done`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

# Ray would look for its head at another address of this machine.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

from ray.cluster_utils import Cluster

T = TypeVar("T")
_TRIES = 5
PLACE = {"node_ip_address": "127.0.0.1", "include_dashboard": False}


def send(node: Any, number: signal.Signals) -> None:
    """To all processes of a node, those of its work included."""
    pids = [each.process.pid for listed in node.all_processes.values() for each in listed]
    for pid in pids:
        pids += [
            int(each)
            for file in Path(f"/proc/{pid}/task").glob("*/children")
            for each in file.read_text().split()
        ]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def patiently(start: Callable[[], T]) -> T:
    """Ray gives a process thirty seconds to start, which a busy machine may not have."""
    for _ in range(_TRIES):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def add_to(cluster: Cluster, cpus: int) -> Any:
    return patiently(lambda: cluster.add_node(num_cpus=cpus, **PLACE))


def main() -> None:
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={**PLACE, "num_cpus": 0}))
    cpus = int(sys.argv[2])
    nodes = [add_to(cluster, cpus) for _ in range(int(sys.argv[1]))]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        match word:
            case "add":
                nodes.append(add_to(cluster, cpus))
            case "kill":
                cluster.remove_node(nodes[int(number)], allow_graceful=False)
            case "freeze":
                send(nodes[int(number)], signal.SIGSTOP)
            case "thaw":
                send(nodes[int(number)], signal.SIGCONT)
            case "restart":
                port = int(cluster.address.rpartition(":")[2])
                cluster.shutdown()
                head = {**PLACE, "num_cpus": 0, "port": port}
                cluster = patiently(lambda head=head: Cluster(initialize_head=True, head_node_args=head))
                nodes = [add_to(cluster, cpus) for _ in nodes]
            case "end":
                break
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
