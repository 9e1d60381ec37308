"""Recording the calls that clients make: noted by the gateway as they are, read and written behind its back.

A call costs its caller an append to a list. Once a second what was noted is taken apart in a thread, its secrets are
hidden, what is too long is cut, and it goes to the ledger: counted, kept if it is one of those that are recorded, and
grouped with others into an incident if it went wrong. What comes faster than that is neither counted nor recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.agents import traffic
from ratchet.agents.contract import Role
from ratchet.agents.learning import is_automatic, want_to_learn
from ratchet.config.redaction import redact
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import NotFound, RatchetError
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.agents import AgentRow, find_version, get_agent
from ratchet.ledger.evals import add_calls, forget_calls
from ratchet.ledger.production import IncidentStatus, count_calls, note_incident, open_split
from ratchet.observe.logs import logger

if TYPE_CHECKING:
    from ratchet.runtime.jobs import Jobs

_log = logger(__name__)
_MOST_WAITING = 10_000
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_PAUSE_SECONDS = 1.0
# So many at a time, so that a flood does not hold the ledger's only writer for long.
_AT_ONCE = 500
# Longer bodies are streams of data, or of a call that is too long to be made again.
MOST_BYTES = 262_144
OTHER = "other"
"""What a call counts as whose tool the version does not have, or whose name is not known."""
_MOST_VERSIONS_KNOWN = 200
_LONGEST_MESSAGE = 2_000


class NotedCall(NamedTuple):
    """What a client sent to a version, and what came back. `lost` says why nothing did, if so.

    Of one that `is_cut` only the beginnings are here.
    """

    agent: str
    commit: str
    server: str
    body: bytes
    answer: bytes
    seconds: float
    recorded: bool = True
    lost: str | None = None
    is_cut: bool = False


class CallRecorder:
    """Takes calls from the gateway and writes them to the ledger. With `jobs`, incidents may become proposals."""

    def __init__(self, ledger: Ledger, settings: Agents, jobs: Jobs | None = None) -> None:
        self._ledger = ledger
        self._settings = settings
        self._jobs = jobs
        self._waiting: deque[NotedCall] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._schemas: dict[tuple[int, str], Mapping[tuple[str, str], Any]] = {}

    def wants_next(self) -> bool:
        """Whether the next call is one of those that are recorded."""
        share = self._settings.record_share
        return share > 0 and (share >= 1 or random.random() < share)

    def note(self, call: NotedCall) -> None:
        size = len(call.body) + len(call.answer)
        if len(self._waiting) >= _MOST_WAITING or self._waiting_bytes + size > _MOST_WAITING_BYTES:
            self._left_out += 1
            return
        self._waiting_bytes += size
        self._waiting.append(call)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write what is noted, until the block ends, and then the rest."""
        task = asyncio.create_task(self._write_steadily())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await asyncio.to_thread(self.write)

    async def _write_steadily(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._waiting:
                await asyncio.to_thread(self.write)

    def write(self) -> None:
        """Write what is noted. A ledger that cannot be written loses records, and no caller notices."""
        if self._left_out:
            _log.warning("calls of agents came too fast to be counted", calls=self._left_out)
            self._left_out = 0
        while self._waiting:
            noted = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            self._waiting_bytes -= sum(len(each.body) + len(each.answer) for each in noted)
            found = [(each, row) for each in noted if (row := self.read(each)) is not None]
            for name in sorted({each.agent for each, _ in found}):
                mine = [(each, row) for each, row in found if each.agent == name]
                try:
                    self._write_of(name, mine)
                except NotFound:
                    continue
                except RatchetError as error:
                    _log.warning("calls of an agent could not be recorded", agent=name, error=str(error))
                except Exception:  # noqa: BLE001 - one agent's calls must not end the recording of all others
                    _log.exception("calls of an agent could not be recorded", agent=name)

    def _write_of(self, name: str, found: Sequence[tuple[NotedCall, dict[str, Any]]]) -> None:
        with self._ledger.write(actor="host") as tx:
            agent = get_agent(tx, name)
            counted, kept = [], []
            for noted, row in found:
                schema = self._tools(tx, agent, row["commit"]).get((row["server"], row["tool"]))
                counted.append({**row, "tool": OTHER if schema is None else row["tool"]})
                if schema is not None and row["outcome"] != "ok" and not _is_misuse(schema, row):
                    self._notice(tx, agent, row, noted)
                del row["input_is_whole"]
                if noted.recorded:
                    kept.append({**row, "agent_id": agent.id, "created_at": tx.now})
            count_calls(tx, agent.id, counted)
            add_calls(tx, kept)
            forget_calls(tx, agent.id, keep=self._settings.records_kept)
            is_split = open_split(tx, agent.id) is not None
        if is_split:
            with self._ledger.write(actor="host") as tx:
                traffic.decide(tx, get_agent(tx, name))

    def _notice(self, tx: Transaction, agent: AgentRow, row: Mapping[str, Any], noted: NotedCall) -> None:
        """Group a call that went wrong with others like it."""
        text = noted.lost or str((row["result"] or {}).get("text") or "no answer")
        # The library of the kit puts this before what a tool raises.
        text = text.removeprefix(f"Error executing tool {row['tool']}: ")
        is_kept = self._settings.record_share > 0
        key = (row["server"], row["tool"], row["outcome"])
        incident = note_incident(
            tx,
            agent,
            [fingerprint(*key, plain(text)), fingerprint(*key, "")],
            at_commit=row["commit"],
            kind=row["outcome"],
            server=row["server"],
            tool=row["tool"],
            message=text[:_LONGEST_MESSAGE],
            arguments=row["arguments"] if is_kept else None,
            expect=None,
            is_whole=bool(row["input_is_whole"]) and is_kept,
        )
        enough = incident.count >= self._settings.learn_after and incident.run_id is None
        is_open = incident.status is IncidentStatus.OPEN and incident.is_whole
        if self._jobs is not None and enough and is_open and is_automatic(agent, self._settings):
            want_to_learn(tx, self._jobs, agent, self._settings)

    def _tools(self, tx: Transaction, agent: AgentRow, commit: str) -> Mapping[tuple[str, str], Any]:
        """The schemas of what a version offers, by server and tool."""
        known = self._schemas.get((agent.id, commit))
        if known is None:
            version = find_version(tx, agent.id, commit)
            offered = [] if version is None else [*version.tools, *(version.offers or ())]
            known = {_place_of(each["name"]): each.get("input_schema") or {} for each in offered}
            while len(self._schemas) >= _MOST_VERSIONS_KNOWN:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[agent.id, commit] = known
        return known

    def read(self, noted: NotedCall) -> dict[str, Any] | None:
        """The row of a call, without its agent; None for what is no call of a tool."""
        if noted.is_cut:
            return self._read_long(noted)
        asked = _parsed(noted.body)
        params = asked.get("params") if isinstance(asked, Mapping) else None
        # Without an id nothing is asked, and nothing answered.
        if not isinstance(params, Mapping) or asked.get("method") != "tools/call" or asked.get("id") is None:
            return None
        arguments, result = params.get("arguments") or {}, _result(noted.answer, asked.get("id"))
        kept_arguments, whole = self._kept(arguments)
        kept_result, is_all = self._kept(result)
        return {
            "commit": noted.commit,
            "server": noted.server,
            "tool": str(params.get("name", ""))[:200],
            "arguments": kept_arguments,
            "result": kept_result,
            "outcome": "error" if result is None else "failed" if result["failed"] else "ok",
            "milliseconds": round(1000 * noted.seconds),
            "is_whole": whole and is_all and result is not None,
            "input_is_whole": whole,
        }

    def _read_long(self, noted: NotedCall) -> dict[str, Any] | None:
        """What there is to say of a call that is too long to be taken apart."""
        if b'"tools/call"' not in noted.body:
            return None
        asked = _parsed(noted.body)
        params = asked.get("params") if isinstance(asked, Mapping) else None
        tool = params.get("name") if isinstance(params, Mapping) else None
        failed = b'"isError":true' in noted.answer or b'"isError": true' in noted.answer
        return {
            "commit": noted.commit,
            "server": noted.server,
            "tool": str(tool or OTHER)[:200],
            "arguments": {},
            "result": None,
            "outcome": "error" if noted.lost else "failed" if failed else "ok",
            "milliseconds": round(1000 * noted.seconds),
            "is_whole": False,
            "input_is_whole": False,
        }

    def _kept(self, value: Any) -> tuple[Any, bool]:
        """What of a value is recorded, and whether that is all of it."""
        hidden = redact(value)
        text = json.dumps(hidden)
        if len(text) <= self._settings.record_bytes:
            return hidden, bool(hidden == value)
        return {"text": text[: self._settings.record_bytes]}, False


def _place_of(name: str) -> tuple[str, str]:
    """The server and the tool that a version is recorded with as `greet`, or as `tuner feedback`."""
    of_tuner = name.startswith("tuner ")
    return (str(Role.TUNER), name.removeprefix("tuner ")) if of_tuner else (str(Role.RUNNER), name)


def _is_misuse(schema: Any, row: Mapping[str, Any]) -> bool:
    """Whether a call did not fit the tool's schema: that is its caller's mistake, and no incident."""
    if row["outcome"] == "error" or not row["input_is_whole"]:
        return False
    # Loaded here: it is needed for calls that failed, and takes a while to load.
    from ratchet.agentkit import AgentKitError
    from ratchet.agentkit.schema import first_fault

    try:
        return first_fault(row["arguments"], json.dumps(schema).encode()) is not None
    except (AgentKitError, ValueError, TypeError, RecursionError):
        return False


_VARYING = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`|0x[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4,})+|[0-9a-f]{12,}|(?:/[\w.~-]+){2,}|\d+(?:\.\d+)?""",
    re.IGNORECASE,
)
_COMPARED = 300


def plain(message: str) -> str:
    """A message without what differs from call to call: names in quotes, numbers, digests and paths."""
    line = next((each for each in message.splitlines() if each.strip()), "")
    return " ".join(_VARYING.sub("…", line[: 4 * _COMPARED]).split())[:_COMPARED].casefold()


def fingerprint(server: str, tool: str, kind: str, message: str) -> str:
    """What calls that went wrong in the same way have in common. It holds for every version."""
    return hashlib.sha256(json.dumps(["incident 1", server, tool, kind, message]).encode()).hexdigest()


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return {}


def _result(answer: bytes, wanted: Any) -> dict[str, Any] | None:
    """The answer of a tool in a response, which is JSON or a stream of events; None if there is none."""
    messages = [answer] if answer.lstrip().startswith(b"{") else _events(answer)
    for message in map(_parsed, messages):
        if not isinstance(message, Mapping) or message.get("id") != wanted:
            continue
        if isinstance(error := message.get("error"), Mapping):
            return {"failed": True, "text": str(error.get("message", "")), "structured": None}
        if isinstance(result := message.get("result"), Mapping):
            parts = result.get("content")
            texts = [
                str(each["text"]) for each in (parts if isinstance(parts, list) else ()) if _is_text(each)
            ]
            structured = result.get("structuredContent")
            return {"failed": bool(result.get("isError")), "text": "\n".join(texts), "structured": structured}
    return None


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _events(answer: bytes) -> Sequence[bytes]:
    lines = answer.replace(b"\r\n", b"\n").split(b"\n")
    return [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]
