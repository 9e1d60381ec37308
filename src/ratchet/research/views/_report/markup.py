"""Pieces of HTML and SVG. Whatever is text is escaped here, and nowhere else is markup put together from text."""

from __future__ import annotations

import html
from collections.abc import Sequence

_ALLOWED_CONTROLS = "\n\t"


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Any text, harmless in an element and in an attribute, with nothing in it that a document may not hold."""
    if not value.isprintable():
        value = "".join(
            each if each.isprintable() or each in _ALLOWED_CONTROLS else " " if each.isspace() else "\ufffd"
            for each in value
        )
    return Markup(html.escape(value))


def tag(name: str, /, *inside: str, **attributes: str | float) -> Markup:
    """An element. Plain strings are escaped, `Markup` is not; `class_` is `class` and `_` in a name is `-`."""
    told = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    content = "".join(each if isinstance(each, Markup) else text(each) for each in inside)
    return Markup(
        f"<{name}{told}>{content}</{name}>" if content or name not in _EMPTY else f"<{name}{told}/>"
    )


def joined(parts: Sequence[Markup], between: str = "\n") -> Markup:
    return Markup(between.join(parts))


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[int] = ()) -> Markup:
    """A table; `numeric` are the columns whose digits line up."""
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", *(_data(value, at in numeric) for at, value in enumerate(row))) for row in rows]
    inner = tag("table", tag("thead", head), tag("tbody", joined(body)))
    return tag("div", inner, class_="wide")


def _data(value: str, numeric: bool) -> Markup:
    # Each cell keeps its direction to itself: a text that runs the other way turns nothing around it.
    return tag("td", value, class_="number") if numeric else tag("td", tag("bdi", value))


# What closes itself when nothing is in it; a browser would take any other element for one that is still open.
_EMPTY = frozenset(("meta", "line", "circle", "path", "rect", "polyline", "polygon"))


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return text(value) if isinstance(value, str) else f"{value:.5g}"
