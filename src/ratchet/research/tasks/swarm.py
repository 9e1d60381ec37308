"""swarm_config.json: which model each specialist uses, and who goes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from ratchet.config.sources import most_like
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import Misuse
from ratchet.research.tasks.folder import read_plain
from ratchet.research.tasks.tables import Line, Table

if TYPE_CHECKING:
    from ratchet.research.adapter import Specialist

FILE_NAME = "swarm_config.json"
_LARGEST = 1024 * 1024
_Priority = Annotated[int, Field(ge=-(2**53), le=2**53)]


class _Models(Table):
    default: Line | None = None
    overrides: dict[str, Line] = Field(default_factory=dict)


class _Priorities(Table):
    default: _Priority | None = None
    overrides: dict[str, _Priority] = Field(default_factory=dict)


class Swarm(Table):
    """What the file says; without one it says nothing."""

    model: _Models = Field(default_factory=_Models)
    scheduler_priority: _Priorities = Field(default_factory=_Priorities)

    def check_names(self, known: Iterable[str], path: Path) -> None:
        """Raise `Misuse` when something is overridden for a specialist that no roster of the task has."""
        names = set(known)
        for name in (*self.model.overrides, *self.scheduler_priority.overrides):
            if name not in names:
                [like] = most_like((name,), ((each,) for each in sorted(names)))
                raise Misuse(
                    f"{path} overrides something for {name!r}, who is in no roster of the task",
                    hint=f"the nearest specialist is {like}",
                )

    def apply(self, specialist: Specialist, own_priority: int | None) -> Specialist:
        """An override is stronger than what task.toml says, and that is stronger than a default."""
        model = self.model.overrides.get(specialist.name) or specialist.model or self.model.default
        priorities = (
            self.scheduler_priority.overrides.get(specialist.name),
            own_priority,
            self.scheduler_priority.default,
        )
        priority = next((each for each in priorities if each is not None), 0)
        return replace(specialist, model=model, priority=priority)


def read_swarm(folder: Path) -> Swarm:
    """Raises `Misuse` for a file that cannot be understood."""
    path = folder / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return Swarm()
    try:
        said = strict_json(read_plain(path, _LARGEST), str(path))
        return Swarm.model_validate(_without_comments(said))
    except BadReport as error:
        raise Misuse(str(error), hint="mend it or remove it") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise Misuse(
            f"{path} is not understood: {'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}",
            hint='it looks like {"model": {"default": "…", "overrides": {"NAME": "…"}}, "scheduler_priority": {…}}',
        ) from None


def _without_comments(said: Any) -> Any:
    """JSON has no comments, so people write them as keys with an underscore in front."""
    if not isinstance(said, Mapping):
        return said
    return {name: value for name, value in said.items() if not name.startswith("_")}
