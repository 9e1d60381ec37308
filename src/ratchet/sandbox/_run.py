"""Running something to its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ratchet.kernel import Misuse
from ratchet.sandbox.bounds import Bounds
from ratchet.sandbox.errors import Broken
from ratchet.sandbox.exchange import Exchange
from ratchet.sandbox.finished import Finished, Stopped
from ratchet.sandbox.inside.nodes import ORDER
from ratchet.sandbox.inside.work import Work
from ratchet.sandbox.layers import try_layers
from ratchet.sandbox.node import Node
from ratchet.sandbox.nursery import NodeKind, held_file, nursery
from ratchet.sandbox.plan import existing, hidden, node_layers, placed
from ratchet.sandbox.policy import Policy
from ratchet.sandbox.running import BACKSTOP_SECONDS, finished, start
from ratchet.sandbox.wiring import new_wiring

# Most nodes have ended by then.
_PATIENCE_SECONDS = 0.02


async def run(
    work: Sequence[str] | Node,
    *,
    cwd: Path | None = None,
    stdin: bytes = b"",
    bounds: Bounds | None = None,
    policy: Policy | None = None,
    overhear: Callable[[bytes], None] | None = None,
) -> Finished:
    """Run a command, or a node with JSON on stdin, to its end. Cancelling kills it.

    `overhear`, which must not raise, is told each piece of its stderr as it comes, within the bound on output.

    Raises `Refused` if the machine lacks a layer of the policy's floor, `CannotStart` if there is no such program or
    directory, `Broken` if the sandbox itself was killed. Everything else is told by what is returned.
    """
    bounds, policy = bounds or Bounds(), policy or Policy()
    if isinstance(work, Node):
        return await _run_node(work, stdin, bounds, policy, overhear)
    if cwd is None:
        raise Misuse("a command needs a directory to run in")
    async with start(work, cwd=cwd, stdin=stdin, bounds=bounds, policy=policy, overhear=overhear) as running:
        return await running.wait()


async def _run_node(
    node: Node, given: bytes, bounds: Bounds, policy: Policy, overhear: Callable[[bytes], None] | None
) -> Finished:
    await try_layers()
    layers = node_layers(policy, scratch=node.scratch)
    readable, places = existing(policy.readable), placed(policy.places)
    kept_from = hidden(policy, (*readable, *(source for _, source in places)))
    work = Work(
        source=node.code(),
        given=given,
        name=_plain(node.name),
        function=_plain(node.function),
        spread=node.spread,
        scratch=node.scratch,
        readable=readable,
        places=places,
        environment={_plain(name): _plain(value) for name, value in policy.environment.items()},
        cpu_seconds=None if bounds.cpu_seconds is None else float(bounds.cpu_seconds),
        memory_bytes=None if bounds.memory_bytes is None else int(bounds.memory_bytes),
        file_bytes=None if bounds.file_bytes is None else int(bounds.file_bytes),
        cpus=tuple(map(int, bounds.cpus)),
    )
    wiring = await new_wiring(with_input=False)
    try:
        with held_file(work.packed()) as file:
            order = ORDER.pack(bounds.wall_seconds)
            kind = NodeKind(layers, node.modules, kept_from)
            parent = await nursery().start_node(order, [file, *wiring.theirs], kind)
    except BaseException:
        wiring.close()
        raise
    wiring.let_go()
    exchange = Exchange(
        wiring,
        b"",
        most_bytes=bounds.output_bytes,
        overhear=overhear,
        patience_seconds=_PATIENCE_SECONDS if overhear is None else 0.0,
    )
    try:
        report = await exchange.report(bounds.wall_seconds + BACKSTOP_SECONDS)
    finally:
        await exchange.leave()
    if report is None:
        raise _died(parent.last_words(), node.modules)
    return _checked(finished(report, exchange, layers), bounds)


# A string itself, also of a member of an enumeration: what a node is told is of Python's own types only.
_plain = str.__str__


def _died(words: str, modules: tuple[str, ...]) -> Broken:
    if words:
        return Broken(
            f"the parent of nodes could not start: {words}", hint=f"check the modules {', '.join(modules)}"
        )
    return Broken("the parent of nodes was killed, so nothing is known of this run", hint="try it again")


def _checked(end: Finished, bounds: Bounds) -> Finished:
    """A node succeeds only by returning JSON; ending well without it is not success."""
    # For its limit the kernel counts ticks, which on a busy machine come to more than the usage that it tells.
    if end.signal == 9 and bounds.cpu_seconds is not None and end.cpu_ms >= bounds.cpu_seconds * 500:
        return replace(end, signal=None, stopped=Stopped.CPU, problem="stopped: cpu")
    if end.exit_code == 0:
        try:
            _strict.decode(end.stdout.decode(json.detect_encoding(end.stdout), "surrogatepass"))
        except (ValueError, RecursionError) as error:
            return replace(end, problem=f"ended without a JSON result: {error}")
    elif end.exit_code == 1:
        lines = end.stderr.decode(errors="replace").strip().splitlines()
        return replace(end, problem=lines[-1][:500] if lines else "failed without a word")
    return end


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_strict = json.JSONDecoder(parse_constant=_refuse)
