from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.conftest import SECRET
from tests.sandbox.places import ordinary_user, python_as, without_namespaces
from tests.sandbox.ways import ATTACKS

PROGRAM = """
import asyncio, json
from pathlib import Path
from ratchet.sandbox import Bounds, Layer, Node, Policy, Refused, Stopped, granted, run
ROOT = Path("/")
async def main():
    {body}
print(json.dumps(asyncio.run(main())))
"""


def program(body: str) -> str:
    return PROGRAM.format(body=body.strip().replace("\n", "\n    "))


def test_an_ordinary_user_gets_every_layer() -> None:
    body = """
node = await run(Node("def run(x):\\n    return x + 1", scratch=True), stdin=b"1")
command = await run(["sh", "-c", "id -u; echo a > /tmp/file; cat /tmp/file"], cwd=ROOT)
return [node.value, command.stdout.decode(), sorted(node.layers) == sorted(command.layers), len(node.layers)]
"""
    assert python_as(ordinary_user, program(body)) == [2, "65534\na\n", True, 11]


def test_a_fork_bomb_of_an_ordinary_user_is_stopped() -> None:
    body = """
line = "bomb() { bomb | bomb & }; bomb; sleep 30"
done = await run(["bash", "-c", line], cwd=ROOT, bounds=Bounds(wall_seconds=10, processes=32))
return [done.stopped, done.wall_ms < 8000]
"""
    assert python_as(ordinary_user, program(body)) == ["processes", True]


def test_without_namespaces_commands_are_refused_and_say_why() -> None:
    body = """
try:
    await run(["true"], cwd=ROOT)
except Refused as refused:
    return [str(refused), refused.hint]
"""
    said, hint = python_as(without_namespaces, program(body))
    assert "pid namespace: " in said
    assert "Operation not permitted" in said
    assert "ratchet doctor" in hint


def test_without_namespaces_a_command_runs_only_for_those_who_accept_it() -> None:
    body = """
done = await run(["sh", "-c", "(setsid sleep 60 &); id -u"], cwd=ROOT, policy=Policy(floor=frozenset()))
return [done.exit_code, [str(layer) for layer in Layer if "namespace" in layer and layer in done.layers]]
"""
    assert python_as(without_namespaces, program(body)) == [0, []]


def test_without_namespaces_nodes_are_still_held(secret: Path, listener: tuple[str, int]) -> None:
    attacks = [
        ("read_file", str(secret)),
        ("write_file", str(secret.parent / "new")),
        ("tcp", list(listener)),
        ("udp", list(listener)),
        ("fork", 1),
        ("program", "/bin/true"),
        ("signal_process", 1),
        ("signal_parent", None),
        ("environment_of_others", None),
    ]
    body = f"""
ends = []
for name, given in {attacks!r}:
    done = await run(Node(Path({str(ATTACKS)!r}), name), stdin=json.dumps(given).encode())
    ends.append(done.ok and done.value)
late = await run(Node("def run(_):\\n    while True: pass"), bounds=Bounds(wall_seconds=0.3))
fine = await run(Node("def run(x):\\n    return x"), stdin=b"5")
return [ends, late.stopped, fine.value, "mount namespace" in fine.layers]
"""
    assert python_as(without_namespaces, program(body)) == [[False] * len(attacks), "wall", 5, False]
    assert secret.read_text() == SECRET


def test_without_namespaces_there_is_no_private_scratch() -> None:
    body = """
try:
    await run(Node("def run(x):\\n    return x", scratch=True))
except Refused as refused:
    return str(refused)
"""
    assert "mount namespace" in python_as(without_namespaces, program(body))


@pytest.mark.parametrize("place", [ordinary_user, without_namespaces])
def test_the_doctor_tells_what_the_sandbox_found(place: object) -> None:
    body = """
from ratchet.doctor import sandbox_layers
told = {check.name: check.status == "ok" for check in sandbox_layers()}
return all(told[f"sandbox {layer}"] == (layer in granted()) for layer in Layer)
"""
    assert python_as(place, program(body)) is True  # type: ignore[arg-type]
