"""`template.json`: which workflow is taken, what was chosen, and which engines are meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.protocols.codemachine.choices import Choices
from ratchet.protocols.codemachine.errors import Place

LARGEST_TEMPLATE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Template:
    """The file as it is. What CodeMachine itself remembers there of its own runs means nothing here."""

    data: Mapping[str, Any] = field(default_factory=dict)
    place: Place = field(default_factory=lambda: Place("template.json"))

    @property
    def workflow(self) -> str | None:
        """The workflow that must be there."""
        return self.text("workflow") or self.text("activeTemplate")

    @property
    def name(self) -> str | None:
        """What the template is called, which may be like a workflow."""
        named = self.data.get("template")
        return named if isinstance(named, str) else None

    @property
    def choices(self) -> Choices:
        conditions = self.data.get("selectedConditions") or []
        if not isinstance(conditions, list) or not all(isinstance(each, str) for each in conditions):
            raise self.place.error("selectedConditions must be an array of texts")
        return Choices(self.text("selectedTrack"), frozenset(conditions))

    def text(self, name: str) -> str | None:
        value = self.data.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.place.error(f"{name} must be a text")
        return value


def read_template(content: bytes, file: str) -> Template:
    """Raises `WorkspaceInvalid` for what is not a JSON object."""
    place = Place(file)
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise Place(file, error.lineno).error(f"it is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise place.error("it is not JSON") from None
    if not isinstance(data, dict):
        raise place.error("it must be a JSON object")
    defaults = data.get("engineDefaults")
    if defaults is not None and not isinstance(defaults, dict):
        raise place.error("engineDefaults must be an object")
    return Template(data, place)
