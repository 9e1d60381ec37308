"""Whether a step gives a tool the inputs that it wants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ratchet.flowkit.inputs import with_defaults


def misnamed_inputs(schema: Mapping[str, Any], given: Collection[str]) -> Iterator[str]:
    """What is wrong with the names of the inputs, said of the tool."""
    properties = schema.get("properties")
    names = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    filled = with_defaults(dict.fromkeys(given, ""), schema)
    for name in required if isinstance(required, list) else ():
        if name not in filled:
            yield f"needs the input {name}, which the step does not give"
    if names and schema.get("additionalProperties") is False:
        for name in given:
            if name not in names:
                yield f"has no input {name}; it has {', '.join(map(str, names))}"
