"""Pieces of HTML and SVG. Whatever is text is escaped here, and nowhere else is markup put together from text."""

from __future__ import annotations

import html
from collections.abc import Sequence

CSS = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --card: #ffffff; --ink: #1c1f23; --soft: #5d656f; --line: #dfe2e6; --faint: #9aa2ab;
  --keep: #0b7d4f; --best: #0b7d4f; --base: #3566c0; --band: #0b7d4f; --crash: #b3261e; --limit: #a15c00;
  --judge: #7b3fa0; --plus: #0b7d4f; --minus: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1b1f23; --ink: #e6e8ea; --soft: #a3abb4; --line: #30363c; --faint: #6d7680;
    --keep: #4cc38a; --best: #4cc38a; --base: #7aa5f0; --band: #4cc38a; --crash: #ff8a80; --limit: #f0b35a;
    --judge: #cf9bf0; --plus: #4cc38a; --minus: #ff8a80;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 24px 20px 60px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 10px; }
p { margin: 6px 0; max-width: 75ch; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.warning { color: var(--limit); font-weight: 600; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 18px 0; }
.fact { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.fact b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.fact span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td { overflow-wrap: anywhere; min-width: 4ch; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { margin: 0; padding: 12px; font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; white-space: pre; }
.plus { color: var(--plus); } .minus { color: var(--minus); } .hunk { color: var(--base); }
svg { display: block; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
svg.plot { width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; unicode-bidi: isolate; }
svg text.ink { fill: var(--ink); }
.axis, .tick { stroke: var(--line); }
.best-line { fill: none; stroke: var(--best); stroke-width: 1.6; }
.band { fill: var(--band); opacity: 0.13; }
.base-line { stroke: var(--base); stroke-dasharray: 5 4; }
.base-band { fill: var(--base); opacity: 0.10; }
.keep { fill: var(--keep); } .baseline { fill: var(--base); } .discard { fill: var(--soft); opacity: 0.7; }
.failed-crash { stroke: var(--crash); } .failed-limit { stroke: var(--limit); } .failed-judge { stroke: var(--judge); }
.outside { fill: none; stroke: var(--faint); }
.edge { fill: none; stroke: var(--line); stroke-width: 1.5; } .edge.on-line { stroke: var(--keep); }
.node { fill: var(--card); stroke: var(--faint); stroke-width: 1.5; }
.node.keep, .node.baseline { stroke: var(--keep); fill: var(--keep); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); margin: 8px 2px; }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; border-radius: 5px; }
.key-keep { background: var(--keep); } .key-base { background: var(--base); } .key-discard { background: var(--faint); }
.key-crash { background: var(--crash); } .key-limit { background: var(--limit); }
.key-judge { background: var(--judge); }
"""


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
    written = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    content = "".join(each if isinstance(each, Markup) else text(each) for each in inside)
    return Markup(
        f"<{name}{written}>{content}</{name}>" if content or name not in _EMPTY else f"<{name}{written}/>"
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
