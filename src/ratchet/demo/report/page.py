"""The page: each act with what happened, its figures, a picture, what was recorded in it, and where to look."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from ratchet.demo.place import Place
from ratchet.demo.shown import Command, Failed, Outcome, Shown
from ratchet.kernel import RatchetError
from ratchet.research.views.markup import CSS as RESEARCH
from ratchet.research.views.markup import Markup, joined, tag

CSS = (
    RESEARCH
    + """
:root { --second: #0b7d4f; --first: #3566c0; --third: #7b3fa0; --mark: #7a4a00; --mark-page: #fff3dc; }
@media (prefers-color-scheme: dark) {
  :root { --second: #4cc38a; --first: #7aa5f0; --third: #cf9bf0; --mark: #f0c987; --mark-page: #3a2d14; }
}
body { max-width: 920px; }
a { color: var(--base); }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 14px 0 6px; }
section { border-top: 1px solid var(--line); margin-top: 34px; padding-top: 4px; }
h2 { font-size: 20px; margin: 18px 0 6px; display: flex; flex-wrap: wrap; gap: 10px; align-items: center; }
h3 { font-size: 14px; margin: 20px 0 6px; color: var(--soft); }
.lead { font-size: 16px; }
.badge { font-size: 12px; font-weight: 600; padding: 2px 9px; border-radius: 10px; border: 1px solid currentcolor; }
.badge.real { color: var(--keep); } .badge.failed { color: var(--crash); }
.badge.simulated { color: var(--mark); background: var(--mark-page); }
.recorded { border-left: 3px solid var(--mark); background: var(--mark-page); padding: 8px 12px; border-radius: 4px; }
.fact b { font-size: 16px; }
.picture { margin: 14px 0; overflow-x: auto; }
.picture .wide { overflow: visible; min-width: min-content; }
.wide svg { border: 0; border-radius: 8px; }
svg.plot { min-width: 560px; }
.edge { stroke: var(--faint); }
svg .mono { font-family: ui-monospace, Menlo, Consolas, monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 18px; }
figure { margin: 0; width: min(250px, 45%); } figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
figure svg { width: 100%; }
.packed { fill: var(--second); fill-opacity: 0.3; stroke: var(--second); }
.box { fill: var(--page); stroke: var(--faint); stroke-width: 1.2; }
.box.good { stroke: var(--keep); } .box.bad { stroke: var(--crash); stroke-dasharray: 5 3; }
.bar, .first { fill: var(--first); } .second { fill: var(--second); } .third { fill: var(--third); }
.block.none { fill: var(--line); }
.cross { stroke: var(--crash); stroke-width: 3; fill: none; stroke-linecap: round; }
.key-first { background: var(--first); } .key-second { background: var(--second); }
.key-third { background: var(--third); }
dl.look { display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: 4px 18px; margin: 8px 0; }
dl.look dt { font: 13px/1.6 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl.look dd { margin: 0; color: var(--soft); }
@media (max-width: 640px) {
  dl.look { grid-template-columns: minmax(0, 1fr); gap: 0; } dl.look dd { margin-bottom: 8px; }
}
"""
)


# Nothing is loaded and nothing runs, whatever somebody has written.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TITLES = {
    "durability": "Durability: a killed worker loses nothing",
    "research": "Research: a program gets better",
    "agents": "Agents: a service is rewritten in use",
    "workflows": "Workflows: steps side by side",
    "protocols": "Protocols: a change passes its gates",
}
_SERVE = Command(
    "ratchet serve", "all of it live, at /console; `ratchet console` prints a link that lets you in"
)


def write_report(place: Place, outcomes: Sequence[Outcome], seconds: float) -> None:
    """Write the page at its place, whole or not at all."""
    written = page(place.number, outcomes, seconds, datetime.now(UTC))
    unfinished = place.report.with_name(f".{place.report.name}.{os.getpid()}")
    try:
        place.report.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(written, encoding="utf-8")
        unfinished.replace(place.report)
    except OSError as error:
        raise RatchetError(
            f"the report cannot be written to {place.report}: {error.strerror or error}",
            hint="make the directory writable or free some space, then start the demo again",
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def page(number: int, outcomes: Sequence[Outcome], seconds: float, at: datetime) -> str:
    title = f"Ratchet: demo {number}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    acts = tag("main", joined([*map(_act, outcomes), _bottom()]))
    body = tag("body", tag("header", _top(title, outcomes, seconds, at)), acts)
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _top(title: str, outcomes: Sequence[Outcome], seconds: float, at: datetime) -> Markup:
    failed = sum(1 for each in outcomes if not each.passed)
    came = f"{failed} of {len(outcomes)} acts failed" if failed else "Everything went well"
    made = (
        f"{came}, in {seconds:.0f} s on {os.cpu_count()} processors with Python {platform.python_version()}."
    )
    links = (tag("a", _TITLES[each.act].partition(":")[0], href=f"#{each.act}") for each in outcomes)
    return joined(
        [
            tag("h1", title),
            tag("p", made, class_="lead"),
            tag("p", at.strftime("%d %B %Y, %H:%M UTC"), class_="soft"),
            tag("nav", *links, aria_label="Acts"),
            tag(
                "p",
                "An act is marked ",
                tag("span", "real", class_="badge real"),
                " if nothing in it was recorded, and ",
                tag("span", "simulated", class_="badge simulated"),
                " if recorded sessions took the place of a model. Code that recordings wrote was still run, tested "
                "and judged. Ratchet marks such runs in its ledger too.",
            ),
        ]
    )


def _act(outcome: Outcome) -> Markup:
    match outcome.came:
        case Shown() as shown:
            word = "simulated" if shown.simulated else "real"
            inside = joined(list(_inside(shown)))
        case Failed() as failed:
            word = "failed"
            inside = joined(list(_why(failed)))
    took = tag("p", f"This act took {outcome.seconds:.1f} s.", class_="soft")
    heading = tag("h2", _TITLES[outcome.act], tag("span", word, class_=f"badge {word}"))
    return tag("section", heading, inside, took, id=outcome.act)


def _inside(shown: Shown) -> Iterator[Markup]:
    yield tag("p", shown.headline, class_="lead")
    if shown.recorded:
        yield tag("p", tag("b", "Recorded: "), shown.recorded, class_="recorded")
    yield tag("p", tag("b", "Real: "), shown.real)
    facts = (
        tag("div", tag("b", value), tag("span", name), class_="fact") for name, value in shown.facts.items()
    )
    yield tag("div", *facts, class_="facts")
    for number, picture in enumerate(shown.pictures, 1):
        yield _scrolling("picture", f"Picture {number}", picture)
    for name, text in shown.quotes.items():
        yield tag("h3", name)
        yield _scrolling("wide", name, tag("pre", *_lines(text))) if "\n" in text else tag("p", text)
    yield tag("h3", "Look further")
    yield _look(shown.look)


def _why(failed: Failed) -> Iterator[Markup]:
    yield tag("p", failed.short, class_="lead")
    if failed.hint:
        yield tag("p", failed.hint)
    if failed.short != failed.reason:
        yield _scrolling("wide", "The whole reason", tag("pre", failed.reason))


def _scrolling(kind: str, name: str, inside: Markup) -> Markup:
    """What may be wider than the page, and can be scrolled with the keyboard too."""
    return tag("div", inside, class_=kind, tabindex="0", role="group", aria_label=name)


def _lines(text: str) -> Iterator[Markup]:
    """Lines of a patch in their colours; those of anything else as they are."""
    for line in text.splitlines():
        kind = {"+": "plus", "-": "minus", "@": "hunk"}.get(line[:1])
        yield tag("span", line, class_=kind) if kind else tag("span", line)
        yield Markup("\n")


def _look(commands: Sequence[Command]) -> Markup:
    rows = [part for each in commands for part in (tag("dt", each.line), tag("dd", each.why))]
    return tag("dl", *rows, class_="look")


def _bottom() -> Markup:
    return tag(
        "section", tag("h2", "Go on"), _look([_SERVE, Command("ratchet runs list", "every run of this home")])
    )
