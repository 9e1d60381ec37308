"""Sessions are recorded on a cassette and made again from it, byte for byte."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Engine, Failure, McpServer, Request, Session, SessionEvent, SessionFailed
from ratchet.engines.cassette import MAX_CASSETTE_BYTES
from ratchet.engines.engine import Capabilities, EngineTool, EventKind
from ratchet.engines.replay import CassetteMismatch, Recording, ReplayEngine
from ratchet.kernel import Limits, Misuse, Usage
from ratchet.modelserver import ModelServer, call, fail
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.fixed import FixedEngine

# Every kind of change: new, in a new directory, binary, executable, a link, changed, deleted, a directory that is now a
# file, and the path of the workspace in what is said.
COMMAND = (
    "echo new > new.txt; mkdir -p deep/er; echo deep > deep/er/file; printf '\\377\\000\\001' > bytes;"
    "echo 'echo hi' > run.sh; chmod +x run.sh; ln -s ../../etc link; echo more >> README.md;"
    "rm gone.txt dir/a; rmdir dir; echo file > dir; pwd"
)

Run = Callable[..., Session]


class Tooled(FixedEngine):
    """One that takes tools, and lets them be."""

    capabilities = Capabilities(edits_files=True, mcp_tools=True)


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "session.jsonl"


@pytest.fixture
def workspaces(workspace: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two of the same content in different places."""
    (workspace / "gone.txt").write_text("gone\n")
    (workspace / "dir").mkdir()
    (workspace / "dir" / "a").write_text("a\n")
    other = tmp_path / "elsewhere" / "other"
    shutil.copytree(workspace, other)
    return workspace, other


@pytest.fixture
def codex(place: Place, model_server: ModelServer) -> CodexSubject:
    return CodexSubject(place, model_server)


def run(engine: Engine, prompt: str, workspace: Path | None = None, **more: Any) -> Session:
    return asyncio.run(engine.propose(Request(prompt, workspace, deadline_seconds=60, **more)))


def tree(workspace: Path) -> str:
    """What git makes of the whole workspace."""
    git = ["git", "-C", str(workspace)]
    subprocess.run([*git, "add", "-A"], check=True)
    done = subprocess.run([*git, "write-tree"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.soak
def test_a_session_of_the_real_codex_is_replayed_byte_for_byte(
    codex: CodexSubject, cassette: Path, workspaces: tuple[Path, Path]
) -> None:
    workspace, other = workspaces
    heard: list[SessionEvent] = []
    again: list[SessionEvent] = []
    recorded = run(Recording(codex.runs(COMMAND), cassette), "Do it.", workspace, listen=heard.append)
    replayed = run(ReplayEngine(cassette), "Do it.", other, listen=again.append)

    assert (other / "bytes").read_bytes() == b"\xff\x00\x01"
    assert (other / "link").readlink() == Path("../../etc")
    assert tree(workspace) == tree(other)
    assert (replayed.text, replayed.usage, replayed.resume) == (
        recorded.text,
        recorded.usage,
        recorded.resume,
    )
    assert (recorded.simulated, replayed.simulated, replayed.engine) == (False, True, "replay:codex")
    here, there = str(workspace), str(other)
    assert here in recorded.transcript.decode()
    assert replayed.transcript == recorded.transcript.replace(here.encode(), there.encode())
    assert repr(again) == repr(heard).replace(here, there)


@pytest.mark.soak
def test_in_the_same_place_the_transcript_is_the_same_to_the_byte(
    codex: CodexSubject, cassette: Path, workspaces: tuple[Path, Path], tmp_path: Path
) -> None:
    workspace, before = workspaces
    heard: list[SessionEvent] = []
    again: list[SessionEvent] = []
    recorded = run(Recording(codex.runs(COMMAND), cassette), "Do it.", workspace, listen=heard.append)
    made = tree(workspace)
    shutil.rmtree(workspace)
    before.rename(workspace)
    replayed = run(ReplayEngine(cassette), "Do it.", workspace, listen=again.append)
    assert (replayed.transcript, again, tree(workspace)) == (recorded.transcript, heard, made)
    assert replace(replayed, engine="codex", simulated=False) == recorded


def test_the_fixed_engine_is_replayed_with_its_output(cassette: Path, workspaces: tuple[Path, Path]) -> None:
    workspace, other = workspaces
    engine = FixedEngine(
        {"a/b.txt": "made ⟨workspace⟩\n", "gone.txt": None},
        text=f"wrote ⟨it⟩ to {workspace}/a",
        output={"score": 0.5},
        usage=Usage(input_tokens=7, wall_ms=3),
    )
    recorded = run(Recording(engine, cassette), "Do it.", workspace)
    replayed = run(ReplayEngine(cassette), "Do it.", other)
    assert replayed.text == f"wrote ⟨it⟩ to {other}/a"
    assert (replayed.output, replayed.usage) == (recorded.output, recorded.usage)
    assert tree(workspace) == tree(other)


def test_a_cassette_holds_no_place_of_the_workspace_and_no_secret(
    cassette: Path, workspaces: tuple[Path, Path]
) -> None:
    workspace, _ = workspaces
    engine = Tooled({"x": "1"}, text=f"I am in {workspace} and {workspace.resolve()}/x.")
    run(
        Recording(engine, cassette),
        f"Look at {workspace} and https://me:hunter2@host/",
        workspace,
        data={"api_key": "hunter3", "place": workspace},
        mcp_servers=(
            McpServer("lab", url="http://127.0.0.1:1/?token=hunter4", environment={"KEY": "hunter5"}),
        ),
    )
    text = cassette.read_text()
    assert str(workspace) not in text
    assert "hunter" not in text
    assert [next(iter(json.loads(line))) for line in text.splitlines()] == [
        "cassette",
        "request",
        "event",
        "event",
        "file",
        "session",
        "end",
    ]


@pytest.mark.soak
def test_a_failed_session_is_recorded_and_fails_again(
    codex: CodexSubject, cassette: Path, workspaces: tuple[Path, Path]
) -> None:
    workspace, other = workspaces
    engine = codex.open(call("exec_command", cmd="echo half > half.txt"), fail(429), toml="retries = 0")
    with pytest.raises(SessionFailed) as first:
        run(Recording(engine, cassette), "Do it.", workspace)
    with pytest.raises(SessionFailed) as second:
        run(ReplayEngine(cassette), "Do it.", other)
    assert second.value.failure is first.value.failure is Failure.RATE_LIMITED
    assert (str(second.value), second.value.hint) == (str(first.value), first.value.hint)
    assert (second.value.session.usage, second.value.session.simulated) == (first.value.session.usage, True)
    assert tree(workspace) == tree(other)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"prompt": "Do it.\nAnd then that.\n"}, '+    "And then that.\\n"'),
        ({"model": "other"}, '+  "model": "other",'),
        ({"output_schema": {"type": "object"}}, '+    "type": "object"'),
        ({"data": {"depth": 3}}, '+    "depth": 3'),
        ({"temperature": 0.2}, '+  "temperature": 0.2,'),
        ({"output_tokens": 5}, '+  "output_tokens": 5,'),
        ({"workspace": None}, '-    "files": 0,'),
    ],
)
def test_another_request_is_refused_with_the_difference(
    cassette: Path, tmp_path: Path, change: Mapping[str, Any], shown: str
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "x").mkdir()
    run(Recording(FixedEngine({"x": "1"}), cassette), "Do it.\nAnd then this.\n", tmp_path / "w")
    asked = {"prompt": "Do it.\nAnd then this.\n", "workspace": tmp_path / "x", **change}
    with pytest.raises(CassetteMismatch) as caught:
        run(ReplayEngine(cassette), **asked)
    assert caught.value.difference.startswith("--- recorded\n+++ asked\n")
    assert shown in caught.value.difference.splitlines()
    assert caught.value.difference in str(caught.value)
    assert list((tmp_path / "x").iterdir()) == []


def test_a_workspace_with_other_files_is_another_request(
    cassette: Path, workspaces: tuple[Path, Path]
) -> None:
    workspace, other = workspaces
    run(Recording(FixedEngine({"x": "1"}), cassette), "Do it.", workspace)
    (other / "README.md").write_text("Another project.\n")
    with pytest.raises(CassetteMismatch, match="sha256"):
        run(ReplayEngine(cassette), "Do it.", other)


def test_what_is_incidental_in_a_workspace_does_not_make_another_request(
    cassette: Path, workspaces: tuple[Path, Path]
) -> None:
    for workspace, moment in zip(workspaces, ("earlier", "later"), strict=True):
        (workspace / "logs").mkdir()
        (workspace / "logs" / "server.log").write_text(moment)
    run(Recording(FixedEngine({"a": "1"}), cassette), "do", workspaces[0], incidental=("logs",))
    run(ReplayEngine(cassette), "do", workspaces[1], incidental=("logs",))
    assert (workspaces[1] / "a").read_text() == "1"
    assert (workspaces[1] / "logs" / "server.log").read_text() == "later"


def test_several_sessions_are_replayed_in_order_and_then_it_is_used_up(cassette: Path) -> None:
    for text in ("one", "two"):
        run(Recording(_Saying(text), cassette), "Say.")
    run(Recording(_Saying("other"), cassette), "Say another.")
    replay = ReplayEngine(cassette)
    # A process that was started again asks for a later one first.
    assert run(replay, "Say another.").text == "other"
    assert [run(replay, "Say.").text for _ in range(2)] == ["one", "two"]
    with pytest.raises(CassetteMismatch, match="used up after 3 sessions"):
        run(replay, "Say.")


def test_without_strictness_the_next_session_answers_anything(cassette: Path) -> None:
    run(Recording(_Saying("one"), cassette), "Say.")
    assert run(ReplayEngine(cassette, strict=False), "Something else.").text == "one"


def test_tools_and_the_guard_are_asked_again_and_must_answer_the_same(cassette: Path) -> None:
    scores: list[float] = []

    async def submit(given: Mapping[str, Any]) -> str:
        scores.append(given["score"])
        return f"number {len(scores)}"

    async def allow(name: str, given: Mapping[str, Any]) -> str | None:
        return None

    asked = {"tools": (EngineTool("submit", "Record a score", {"type": "object"}, submit),), "guard": allow}
    run(Recording(_Submitting(), cassette), "Go.", **asked)
    scores.clear()
    assert run(ReplayEngine(cassette), "Go.", **asked).text == "number 1"
    assert scores == [1.5]
    with pytest.raises(CassetteMismatch, match="number 2") as caught:
        run(ReplayEngine(cassette), "Go.", **asked)
    assert '-  "result": "number 1"' in caught.value.difference


def test_a_replay_keeps_to_its_budget(cassette: Path, tmp_path: Path) -> None:
    engine = FixedEngine({}, usage=Usage(input_tokens=100))
    run(Recording(engine, cassette), "Do it.", _empty(tmp_path / "w"))
    with pytest.raises(SessionFailed) as caught:
        run(ReplayEngine(cassette), "Do it.", _empty(tmp_path / "x"), limits=Limits(tokens=50))
    assert (caught.value.failure, caught.value.session.usage.tokens) == (Failure.BUDGET, 100)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda text: text.replace("Hello", "Hullo"),
        lambda text: text.replace('"text": "1"', '"text": "2"'),
        lambda text: "\n".join(text.splitlines()[:-1]) + "\n",
        lambda text: "\n".join(text.splitlines()[1:]) + "\n",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"cassette": 1', '"cassette": 99'),
        lambda text: text + "nonsense\n",
        lambda text: text + '{"end": "x"}\n',
        lambda _: "[" * 100_000,
        lambda _: "",
    ],
)
def test_a_cassette_that_was_changed_is_not_replayed(
    cassette: Path, tmp_path: Path, tamper: Callable[[str], str]
) -> None:
    run(Recording(FixedEngine({"x": "1"}, text="Hello"), cassette), "Do it.", _empty(tmp_path / "w"))
    cassette.write_text(tamper(cassette.read_text()))
    with pytest.raises(SessionFailed) as caught:
        run(ReplayEngine(cassette), "Do it.", _empty(tmp_path / "x"))
    assert caught.value.failure is Failure.BAD_OUTPUT
    assert str(cassette) in str(caught.value)
    assert list((tmp_path / "x").iterdir()) == []
    assert not asyncio.run(ReplayEngine(cassette).check()).ready


@pytest.mark.parametrize(
    "change",
    [
        {"file": {"path": "../out.txt", "mode": "100644", "text": "x"}},
        {"file": {"path": "/tmp/out.txt", "mode": "100644", "text": "x"}},
        {"file": {"path": ".git/config", "mode": "100644", "text": "x"}},
        {"file": {"path": "link/out.txt", "mode": "100644", "text": "x"}},
        {"file": {"path": "x", "mode": "104755", "text": "x"}},
        {"deleted": {"path": "link/precious.txt"}},
        {"unknown": {}},
    ],
)
def test_a_forged_cassette_reaches_nothing_outside_the_workspace(
    cassette: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    outside = _empty(tmp_path / "outside")
    (outside / "precious.txt").write_text("precious")
    run(Recording(FixedEngine({"x": "1"}), cassette), "Do it.", _empty(tmp_path / "w"))
    link = {"file": {"path": "link", "mode": "120000", "text": str(outside)}}
    _forge(cassette, [link, change])
    with pytest.raises(SessionFailed) as caught:
        run(ReplayEngine(cassette), "Do it.", _empty(tmp_path / "x"))
    assert caught.value.failure is Failure.BAD_OUTPUT
    assert [each.name for each in outside.iterdir()] == ["precious.txt"]
    assert not (tmp_path / "out.txt").exists()


def test_a_forged_ending_is_bad_output(cassette: Path) -> None:
    run(Recording(_Saying("x"), cassette), "Say.")
    lines = [json.loads(line) for line in cassette.read_text().splitlines()]
    lines[-2] = {"session": {"text": 5}}
    _write(cassette, lines)
    with pytest.raises(SessionFailed) as caught:
        run(ReplayEngine(cassette), "Say.")
    assert caught.value.failure is Failure.BAD_OUTPUT


def test_a_cassette_that_is_not_there_is_missing(cassette: Path) -> None:
    with pytest.raises(SessionFailed) as caught:
        run(ReplayEngine(cassette), "Do it.")
    assert (caught.value.failure, caught.value.worked) == (Failure.MISSING, False)


def test_a_cassette_is_not_mixed_from_two_engines(cassette: Path, tmp_path: Path) -> None:
    run(Recording(_Saying("x"), cassette), "Say.")
    before = cassette.read_bytes()
    with pytest.raises(Misuse, match="is a recording of saying, not of fixed"):
        run(Recording(FixedEngine({"x": "1"}), cassette), "Do it.", _empty(tmp_path / "w"))
    assert cassette.read_bytes() == before
    assert list((tmp_path / "w").iterdir()) == []


def test_a_session_that_cannot_be_recorded_is_not_a_success(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((SessionFailed, Misuse), match="recorded"):
        run(Recording(_Saying("x"), tmp_path / "file" / "cassette.jsonl"), "Say.")


def test_sessions_that_run_at_once_are_all_recorded(cassette: Path) -> None:
    recording = Recording(_Saying("x"), cassette)

    async def both() -> None:
        await asyncio.gather(*(recording.propose(Request(f"Say {number}.")) for number in range(8)))

    asyncio.run(both())
    replay = ReplayEngine(cassette)
    assert {run(replay, f"Say {number}.").text for number in range(8)} == {"x"}
    assert [each.name for each in cassette.parent.iterdir()] == [cassette.name]


def test_a_cassette_is_opened_by_its_path(place: Place, cassette: Path) -> None:
    run(Recording(_Saying("x"), cassette), "Say.")
    engine = place.open(f"replay:{cassette}")
    assert (run(engine, "Say.").text, engine.name) == ("x", "replay:saying")
    assert engine.capabilities == _Saying("x").capabilities
    assert asyncio.run(engine.check()).detail == "1 sessions of saying"


def test_without_a_path_it_is_not_ready(place: Place) -> None:
    engine = place.open("replay")
    assert not asyncio.run(engine.check()).ready
    with pytest.raises(Misuse, match="no cassette"):
        run(engine, "Say.")


@pytest.mark.soak
def test_a_resumed_session_of_codex_is_replayed_too(codex: CodexSubject, cassette: Path) -> None:
    recording = Recording(codex.says("one", "two"), cassette)
    first = run(recording, "First.")
    run(recording, "Second.", resume=first.resume)
    replay = ReplayEngine(cassette)
    assert run(replay, "Second.", resume=run(replay, "First.").resume).text == "two"


class _Saying(FixedEngine):
    """Says something and changes nothing."""

    name = "saying"
    capabilities = Capabilities(reports_usage=True)

    def __init__(self, text: str) -> None:
        super().__init__({}, text=text)

    async def propose(self, request: Request) -> Session:
        request.listen(SessionEvent(EventKind.MESSAGE, self._text))
        await asyncio.sleep(0)
        return Session(self.name, text=self._text)


class _Submitting(_Saying):
    """Asks the guard, calls the first tool, and says what it answered."""

    def __init__(self) -> None:
        super().__init__("")

    async def propose(self, request: Request) -> Session:
        assert request.guard is not None
        assert await request.guard("submit", {"score": 1.5}) is None
        return Session(self.name, text=await request.tools[0].run({"score": 1.5}))


def _empty(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _forge(cassette: Path, changes: list[dict[str, Any]]) -> None:
    """Put changes into the only session and sign it again."""
    lines = [json.loads(line) for line in cassette.read_text().splitlines()]
    _write(cassette, [*lines[:-2], *changes, *lines[-2:]])


def _write(cassette: Path, lines: list[dict[str, Any]]) -> None:
    header, *session, _end = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    signed = hashlib.sha256("".join(session).encode()).hexdigest()
    cassette.write_text("".join([header, *session, json.dumps({"end": signed}) + "\n"]))


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "a named pipe", "a directory", "too long"])
def test_what_is_no_file_of_bounded_length_is_no_cassette_and_is_not_read(tmp_path: Path, place: str) -> None:
    path = Path(place)
    if place == "a named pipe":
        os.mkfifo(path := tmp_path / "pipe")
    elif place == "a directory":
        path = tmp_path
    elif place == "too long":
        path = tmp_path / "sparse"
        path.touch()
        os.truncate(path, MAX_CASSETTE_BYTES + 1)
    engine = ReplayEngine(path)
    assert engine.name == "replay"
    readiness = asyncio.run(engine.check())
    assert (readiness.ready, str(path) in readiness.detail) == (False, True)


def test_a_cassette_whose_first_line_is_endless_is_damaged(cassette: Path) -> None:
    cassette.parent.mkdir()
    cassette.write_bytes(b"x" * 10_000_000)
    assert ReplayEngine(cassette).name == "replay"
