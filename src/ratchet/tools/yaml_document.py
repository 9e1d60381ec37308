"""A YAML document from any author: plain values, within bounds."""

from __future__ import annotations

from typing import Any

import yaml

from ratchet.tools.definition_file import DEEPEST, MOST_VALUES, UnreadableDefinition

_LONGEST_NUMBER = 300


def load(text: str) -> Any:
    """The value that the document has. Raises `UnreadableDefinition`."""
    try:
        _weigh(text)
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UnreadableDefinition(f"it is not YAML: {' '.join(str(error).split())[:300]}") from error
    except (RecursionError, ValueError, TypeError) as error:
        raise UnreadableDefinition(f"it is not YAML that can be read: {str(error)[:200]}") from error


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain values only. A date stays the text that it is in the file."""

    def construct_short_int(self, node: Any) -> Any:
        return self.construct_yaml_int(_short(node))

    def construct_short_float(self, node: Any) -> Any:
        return self.construct_yaml_float(_short(node))


def _short(node: Any) -> Any:
    """A number of a length that numbers have: one in base 60, which YAML has too, may take minutes to work out."""
    if len(node.value) > _LONGEST_NUMBER:
        raise UnreadableDefinition(f"{node.value[:20]}… is too long for a number")
    return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_short_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_short_float)


def _weigh(text: str) -> None:
    """Refuse what would take too much to load: values inside values without end, and few words that mean millions.

    The parser reports one event after the other and can be left at any; what loads them goes down with every level,
    and too deep it takes the process with it. An alias weighs as much as what it stands for.
    """
    weights: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, weight = open_nodes.pop()
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > DEEPEST:
                raise UnreadableDefinition(f"it is more than {DEEPEST} deep")
            continue
        elif isinstance(event, yaml.AliasEvent):
            # One that stands for what it is part of has no weight yet, and no end.
            anchor, weight = None, weights.get(event.anchor, MOST_VALUES + 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchor, weight = event.anchor, 1
        else:
            continue
        if anchor is not None:
            weights[anchor] = weight
        outer, before = open_nodes[-1]
        open_nodes[-1] = (outer, before + weight)
        if before + weight > MOST_VALUES:
            raise UnreadableDefinition(f"it has more than {MOST_VALUES:,} values")
