"""Values as people read them: moments, durations, sizes, money. Filters of the templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Depends, Path, Query
from markupsafe import Markup, escape
from pydantic import TypeAdapter

from ratchet.config import Settings
from ratchet.kernel import Limits, dollars, sendable
from ratchet.ledger import Transaction
from ratchet.ledger.usage import Scope, account
from ratchet.runtime import configured_budgets
from ratchet.server.console.access import ROOT
from ratchet.server.fields import Json


def spent(tx: Transaction, settings: Settings, scope: Scope, number: int) -> dict[str, Any]:
    """The usage of an attempt, a run or a project so far, and the limits in force for it."""
    found = account(tx, scope, number, configured_budgets(settings))
    used = found.spent
    return {
        "usage": asdict(used),
        "policy": str(found.policy),
        "measures": [
            {"name": each.name, "used": getattr(used, each.name), "limit": getattr(found.limits, each.name)}
            for each in fields(Limits)
        ],
    }


def _full_name(
    tool: Annotated[str, Path(max_length=200)],
    workflow: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
) -> str:
    return tool if workflow is None else f"{workflow}/{tool}"


ToolName = Annotated[str, Depends(_full_name)]


def tool_place(name: str, action: str = "", **more: str) -> str:
    """The address of the page of a tool, `WORKFLOW/TOOL` or its own name, or of something to be done there."""
    workflow, _, own = name.rpartition("/")
    asked = urlencode(({"workflow": workflow} if workflow else {}) | more)
    return f"{ROOT}/tools/{quote(own, safe='')}{action}{'?' if asked else ''}{asked}"


LONGEST = 20_000
_SENDABLE: TypeAdapter[Any] = TypeAdapter(Json)


def cut(value: Any, longest: int = LONGEST) -> dict[str, Any]:
    """A value as JSON over several lines: its beginning, how long all of it is, and whether some was left out."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        text = "a value that is too deep to be shown"
    return cut_text(text, longest)


def cut_text(text: str, longest: int = LONGEST) -> dict[str, Any]:
    """The beginning of a text that nobody has checked."""
    shown = sendable(text[:longest])
    return {"text": shown, "characters": len(text), "is_cut": len(text) > longest}


def clean(value: Any) -> Any:
    """A value from anywhere that can be sent: without lone surrogates, and what lies very deep as text."""
    return _SENDABLE.validate_python(value)


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SIZES = ("bytes", "kB", "MB", "GB")
_MOST_DIFF_LINES = 4000
_KINDS = {"+": "added", "-": "removed", "@": "place"}
NOTHING = "–"
_UNKNOWN = "unknown"


class Line(NamedTuple):
    """A line of a patch: added, removed, place, file or same."""

    kind: str
    text: str


def moment(value: Any) -> Markup | str:
    """A moment (ISO text, datetime or milliseconds); the browser turns it into the reader's own time."""
    when = _datetime(value)
    if when is None:
        return NOTHING
    return Markup('<time datetime="{}">{}</time>').format(
        when.isoformat(timespec="milliseconds"), when.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def duration(seconds: Any) -> str:
    if seconds is None:
        return NOTHING
    seconds = float(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def between(start: Any, end: Any) -> str:
    """How long it took from one moment to another; nothing while it has not ended."""
    first, last = _datetime(start), _datetime(end)
    return NOTHING if first is None or last is None else duration((last - first).total_seconds())


def number(value: Any) -> str:
    """`12,345`, or a float with what matters of it."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def money(value: Any) -> str:
    return NOTHING if value is None else dollars(float(value))


def cost(value: Any) -> str:
    """What was paid, of an amount or of what was used. What nobody knows is unknown, and never nothing."""
    if value is None:
        return _UNKNOWN
    if isinstance(value, int | float):
        return money(value)
    used = value if isinstance(value, Mapping) else asdict(value)
    known = (used.get("cost_microusd") or 0) / 1_000_000
    if not used.get("unpriced_tokens"):
        return money(known)
    return f"over {money(known)}" if known else _UNKNOWN


def size(value: Any) -> str:
    if value is None:
        return NOTHING
    left = float(value)
    for name in _SIZES[:-1]:
        if left < 1000:
            return f"{left:.0f} {name}" if name == "bytes" else f"{left:.1f} {name}"
        left /= 1000
    return f"{left:.1f} {_SIZES[-1]}"


def short(commit: Any) -> str:
    """The beginning of a hash."""
    return str(commit)[:10] if commit else NOTHING


def words(value: Any) -> str:
    """`needs_qa` as `needs qa`."""
    return str(value).replace("_", " ")


def pretty(value: Any) -> str:
    """JSON over several lines, or a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def setting(value: Any) -> str:
    """The value of a setting as `ratchet.toml` would have it, but texts without quotation marks."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def plain(text: Any) -> str:
    """Text of a program without the codes for a terminal's colours."""
    return _ANSI.sub("", str(text or ""))


def patch(text: Any) -> Iterator[Line]:
    """The lines of a patch; the rest of a very long one is left out, and the last line says so."""
    for count, line in enumerate(plain(text).splitlines()):
        if count == _MOST_DIFF_LINES:
            yield Line("place", f"… cut after {_MOST_DIFF_LINES} lines")
            return
        if line.startswith(
            ("diff ", "index ", "+++", "---", "new file", "deleted file", "rename ", "similarity ")
        ):
            yield Line("file", line)
        else:
            yield Line(_KINDS.get(line[:1], "same"), line)


def marked(text: Any) -> Markup:
    """Text with its line breaks kept."""
    return Markup("<br>").join(escape(line) for line in str(text or "").splitlines())


def web(value: Any) -> str | None:
    """An address that may be linked to: one of the web, and nothing that a browser would run."""
    return value if isinstance(value, str) and value.startswith(("https://", "http://")) else None


def _datetime(value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000, UTC)
    return datetime.fromisoformat(str(value))


FILTERS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        moment,
        duration,
        between,
        number,
        cost,
        money,
        size,
        short,
        words,
        pretty,
        setting,
        plain,
        patch,
        marked,
        web,
    )
}
