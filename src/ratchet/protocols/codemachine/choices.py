"""Which of several ways through a workflow is taken: tracks and conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.fields import Fields


@dataclass(frozen=True, slots=True)
class Choices:
    """What was chosen: a track or none, and the conditions that hold."""

    track: str | None = None
    conditions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Only:
    """When something is part of the work: on one of these tracks, if all and any of these conditions hold."""

    tracks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    any_conditions: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Fields) -> Only:
        return cls(fields.texts("tracks"), fields.texts("conditions"), fields.texts("conditionsAny"))

    def holds(self, choices: Choices, place: Place) -> bool:
        """Raises `WorkspaceInvalid` when a track must be chosen and none was."""
        if self.tracks and choices.track is None:
            raise place.error(
                f"this depends on the track ({', '.join(self.tracks)}), and none is chosen",
                hint="set selectedTrack in template.json, or give the track when importing",
            )
        return (
            (not self.tracks or choices.track in self.tracks)
            and choices.conditions.issuperset(self.conditions)
            and (not self.any_conditions or not choices.conditions.isdisjoint(self.any_conditions))
        )


ALWAYS = Only()


def all_hold(several: Iterable[Only], choices: Choices, place: Place) -> bool:
    return all(each.holds(choices, place) for each in several)
