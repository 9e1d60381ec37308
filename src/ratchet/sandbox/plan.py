"""From a policy to what the inside of the sandbox is told to do."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.sandbox.bounds import Bounds
from ratchet.sandbox.inside.spec import Spec
from ratchet.sandbox.inside.view import PROGRAMS, View
from ratchet.sandbox.layers import COMMAND_FLOOR, NODE_FLOOR, Layer, granted
from ratchet.sandbox.policy import Policy
from ratchet.sandbox.result import Refused


def command_layers(policy: Policy) -> tuple[str, ...]:
    """The layers that will be on for a command. Raises `Refused` if one of the floor is not granted."""
    left_out = frozenset({Layer.NETWORK} if policy.network else ())
    return _layers(left_out, COMMAND_FLOOR if policy.floor is None else policy.floor)


def node_layers(policy: Policy, *, scratch: bool) -> tuple[str, ...]:
    """The layers that will be on for a node. Raises `Misuse` for rights that no node has, and `Refused`."""
    if policy.network or policy.writable or policy.see_everything or policy.read_only:
        raise Misuse(
            "a node has no network and writes only to its scratch",
            hint="give it readable directories only, or run a command instead",
        )
    floor = NODE_FLOOR if policy.floor is None else policy.floor
    # Landlock can show a directory and its parts, but not the one without the other.
    needs_mounts = scratch or policy.hidden or policy.places
    return _layers(frozenset(), floor | {Layer.MOUNT} if needs_mounts else floor)


def _layers(left_out: frozenset[Layer], floor: frozenset[Layer]) -> tuple[str, ...]:
    offered = granted()
    missing = floor - left_out - offered.names
    if missing:
        raise Refused(
            f"the sandbox lacks what this run needs: {'; '.join(map(offered.detail, sorted(missing)))}",
            hint="`ratchet doctor` tells how to mend it; a lower `floor` in the policy accepts less isolation",
        )
    on = offered.names - left_out
    return tuple(str(layer) for layer in Layer if layer in on)


def spec_of(argv: Sequence[str], cwd: Path, bounds: Bounds, policy: Policy) -> Spec:
    if not argv:
        raise Misuse("a command needs at least the name of a program")
    if any("\0" in word for word in argv):
        raise Misuse(f"an argument of {argv[0]!r} has a NUL character in it")
    return Spec(
        argv=list(argv),
        cwd=str(cwd.resolve()),
        environment=dict(policy.environment),
        variables=[],
        layers=[*command_layers(policy)],
        view=_view(policy, bounds),
        wall_seconds=bounds.wall_seconds,
        cpu_seconds=bounds.cpu_seconds,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        file_bytes=bounds.file_bytes,
        cpus=list(bounds.cpus),
        look_seconds=bounds.look_seconds,
    )


def _view(policy: Policy, bounds: Bounds) -> View:
    roots = {str(path): path.resolve() for path in (*policy.writable, *policy.readable)}
    return View(
        everything=policy.see_everything,
        network=policy.network,
        python=python_directories(),
        readable=existing(policy.readable),
        writable=existing(policy.writable),
        read_only=tuple(_below(path, roots, policy.see_everything) for path in policy.read_only),
        hidden=hidden(policy, (*policy.readable, *policy.writable)),
        places=placed(policy.places),
        scratch_bytes=bounds.memory_bytes,
    )


def existing(paths: Sequence[Path]) -> tuple[str, ...]:
    """Their real paths. Raises `Misuse` for one that does not exist."""
    for path in paths:
        if not path.exists():
            raise Misuse(f"the sandbox cannot show {path}: it does not exist")
    return tuple(str(path.resolve()) for path in paths)


def placed(places: Mapping[Path, Path]) -> tuple[tuple[str, str], ...]:
    """Where something is to be seen, and its real path."""
    return tuple(zip(map(str, places), existing(tuple(places.values())), strict=True))


def is_shown(path: Path) -> bool:
    """Whether every run sees what is at `path`, because it lies among the programs and libraries."""
    return bool(_aliases(path))


def hidden(policy: Policy, shown: Sequence[Path | str]) -> tuple[tuple[str, str], ...]:
    """Every path by which the run would see what the policy hides, split as `_below` does it."""
    if not policy.hidden:
        return ()
    roots = {str(path): Path(path).resolve() for path in shown}
    found: list[tuple[str, str]] = []
    for path in policy.hidden:
        by_others = () if policy.see_everything else _aliases(path)
        found += by_others
        if not by_others or any(path.is_relative_to(each) for each in roots):
            found.append(_below(path, roots, policy.see_everything))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=64)
def _aliases(path: Path) -> tuple[tuple[str, str], ...]:
    """What `path` is called below each directory that every run sees; two of those may be the same one."""
    real = path.resolve()
    wholes = [
        (each, Path(each).resolve())
        for each in (*PROGRAMS, *python_directories())
        if not Path(each).is_symlink()
    ]
    return tuple(
        (each, str(real.relative_to(whole)))
        for each, whole in wholes
        if real != whole and real.is_relative_to(whole)
    )


def _below(path: Path, roots: dict[str, Path], everything: bool) -> tuple[str, str]:
    """Split `path` into a directory of the policy and the rest, of which no part may be a symbolic link.

    What a run can write, it can replace by a link to elsewhere before the next run is given the same policy.
    """
    for given, real in sorted(roots.items(), key=lambda item: -len(item[0])):
        if path.is_relative_to(given):
            return str(real), str(path.relative_to(given))
    if everything:
        return "/", str(path.resolve()).lstrip("/")
    raise Misuse(f"{path} lies in no directory that the policy shows")


def python_directories() -> tuple[str, ...]:
    """Where the running Python has its program, its library and its packages, by all the names it knows them by."""
    known = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    wanted = known | {path.resolve() for path in known}
    return tuple(sorted(str(path) for path in wanted if not path.is_relative_to("/usr")))


def package_directories() -> list[str]:
    """Where its installed packages are, which a node may import."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))
