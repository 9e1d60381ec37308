"""What a run may see and touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.sandbox.layers import Layer


@dataclass(frozen=True, slots=True)
class Policy:
    """The rights of one run. Everything not granted here is refused.

    `readable` and `writable` come on top of the system's own programs and libraries and a private, empty /tmp. A path
    in `read_only` lies inside a writable one and is not writable all the same, such as the `.git` of a workspace; one
    in `hidden` appears empty, also where it lies among the programs and libraries. `places` shows what may be read by
    another path than its own; what is also writable can be written there, too.

    `see_everything` shows the whole file system, still read-only outside `writable`: it is for agent
    CLIs, which may then also put their own sandbox around what they start. It does not show what others have in /tmp
    and /run.

    `environment` is the whole environment; nothing is inherited. A run is refused unless every layer of `floor` is on;
    `None` stands for `NODE_FLOOR` or `COMMAND_FLOOR`.
    """

    network: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    see_everything: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    floor: frozenset[Layer] | None = None

    def __post_init__(self) -> None:
        placed = (*self.places, *self.places.values())
        for path in (*self.readable, *self.writable, *self.read_only, *self.hidden, *placed):
            if not path.is_absolute() or ".." in path.parts:
                raise Misuse(f"a policy needs absolute paths without '..', not {str(path)!r}")
            if path == Path("/"):
                raise Misuse("a policy cannot name /", hint="`see_everything` shows the whole file system")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise Misuse(f"{name!r} cannot be an environment variable")
