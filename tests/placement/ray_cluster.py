"""A Ray cluster on loopback for a test, in an environment that has Ray: a head without room for work, and nodes.

Prints its address, then obeys lines: `add`, `kill N` for the N-th node, and `end`; says `done`.
"""

from __future__ import annotations

import os
import sys

# Ray would look for its head at another address of this machine.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

from ray.cluster_utils import Cluster

PLACE = {"node_ip_address": "127.0.0.1", "include_dashboard": False}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**PLACE, "num_cpus": 0})
    cpus = int(sys.argv[2])
    nodes = [cluster.add_node(num_cpus=cpus, **PLACE) for _ in range(int(sys.argv[1]))]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        match word:
            case "add":
                nodes.append(cluster.add_node(num_cpus=cpus, **PLACE))
            case "kill":
                cluster.remove_node(nodes[int(number)], allow_graceful=False)
            case "end":
                break
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
