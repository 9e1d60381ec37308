"""The broker of a Ray cluster: each attempt is a task of Ray, on a node that has what it needs.

Ray neither retries nor remembers anything for us: a task whose node died is an attempt that was lost. Run as
`python -P -m ratchet.placement.ray_tasks ADDRESS`; it dies with whoever started it, and Ray then ends its tasks.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

from ratchet.placement.frames import Answer, Broker, NodeRow, Placed, serve
from ratchet.placement.node import NodeReply

_CONNECT_SECONDS = 10.0
_MOST_READY = 64
_NODE = "ray.io/node-id"
_LOOPBACK = ("127.0.0.1", "localhost")


def _connect(address: str) -> None:
    """End with one line that says why when there is no cluster. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            sys.exit(f"there is no Ray at {address}: {error.strerror or error}")
    if host in _LOOPBACK:
        # Ray would look for a cluster on loopback at another address of this machine.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Ray shows the directory of a program, and the one it was started in, to the Python of every node.
    os.chdir("/")
    sys.argv[0] = "/ratchet"
    import ray  # not before: it reads its variables when it is imported

    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, namespace="ratchet")
    except Exception as error:  # noqa: BLE001 - whatever it is, this process is of no use
        sys.exit(f"Ray at {address} cannot be used: {error}")


def _tasks() -> dict[bool, Any]:
    """What Ray runs on a node: work that streams what it has to report, and work that has one reply, which takes Ray
    half as long. It travels as code, since the Ratchet there may be another one or none."""
    import ray

    def placed(version: str, packed: bytes, contents: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
        import ray

        context = ray.get_runtime_context()
        node = context.get_node_id()
        reason = ""
        try:
            import ratchet
            from ratchet.placement.node import answers

            if ratchet.__version__ != version:
                reason = f"has Ratchet {ratchet.__version__}, not {version}"
        except ImportError as error:
            reason = f"has no Ratchet that can do it: {error}"
        if reason:
            # Its address is looked up by asking the network, which takes longer than small work.
            who = f"node {node[:8]} ({ray.util.get_node_ip_address()})"
            yield node, ("unfit", b"", f"{who} {reason}", None)
            return
        gpus = tuple(map(str, context.get_accelerator_ids().get("GPU", ())))
        for piece in answers(packed, lambda sha256: ray.get(contents[sha256][0]), gpus):
            yield node, piece

    def placed_once(version: str, packed: bytes, contents: dict[str, list[Any]]) -> tuple[str, Any]:
        *_, last = placed(version, packed, contents)
        return last

    return {
        True: ray.remote(num_returns="streaming", max_retries=0)(placed),
        False: ray.remote(max_retries=0)(placed_once),
    }


class RayBroker(Broker):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._tasks = _tasks()
        # To make one takes longer than to send a task.
        self._ready: dict[str, Any] = {}
        self._contents: dict[str, Any] = {}

    def content(self, sha256: str, content: bytes) -> None:
        import ray

        self._contents[sha256] = ray.put(content)

    def drop(self, sha256: str) -> None:
        self._contents.pop(sha256, None)

    def nodes(self) -> list[NodeRow]:
        import ray
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
        return [
            NodeRow(
                each["NodeID"],
                each["NodeManagerAddress"],
                each["Resources"],
                each["Labels"],
                free.get(each["NodeID"], {}),
            )
            for each in ray.nodes()
            if each["Alive"]
        ]

    async def run(self, number: int, placed: Placed) -> None:
        import ray

        # In lists, so that a node asks only for what it does not have.
        contents = {sha256: [self._contents[sha256]] for sha256 in placed.contents}
        sent = self._task(placed).remote(placed.version, placed.packed, contents)
        ended = False
        try:
            if placed.streams:
                async for each in sent:
                    node, piece = await each
                    if isinstance(piece, tuple):
                        ended, piece = True, NodeReply(*piece)
                    self.answer(number, piece, node)
            else:
                node, piece = await sent
                ended = True
                self.answer(number, NodeReply(*piece), node)
        finally:
            if not ended:
                # With its process, and so with all that runs in its sandbox.
                ray.cancel(sent, force=True)

    def _task(self, placed: Placed) -> Any:
        needs = placed.needs
        labels = dict(needs.labels)
        if placed.unfit:
            labels[_NODE] = f"!in({','.join(placed.unfit)})"
        options: dict[str, Any] = {
            # What it is, without which one: names of Ray's are for people who watch the cluster.
            "name": placed.name.partition(" ")[0],
            "num_cpus": needs.cpus,
            "num_gpus": needs.gpus,
            "label_selector": labels,
            **({"memory": needs.memory_bytes} if needs.memory_bytes else {}),
            **({"accelerator_type": needs.gpu_type} if needs.gpu_type else {}),
        }
        key = repr((placed.streams, options))
        if key not in self._ready:
            if len(self._ready) >= _MOST_READY:
                self._ready.clear()
            self._ready[key] = self._tasks[placed.streams].options(**options)
        return self._ready[key]


def main() -> None:
    [address] = sys.argv[1:]
    serve(RayBroker, lambda: _connect(address))


if __name__ == "__main__":
    main()
