"""Where the lines of a chat come from, a person at a terminal or a script, and what is kept of a chat in the home."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ratchet.cli.output import note
from ratchet.cli.words import lines
from ratchet.config.redaction import hide_known
from ratchet.kernel import decoded

_PROMPT = "> "
_MOST_TURNS, _MOST_CHANGES = 200, 20
_LONGEST_LINE = 64 * 1024
_LARGEST_HISTORY = 1024 * 1024

Complete = Callable[[str], Iterable[str]]


class ChatInput(Protocol):
    """`interactive` says that a person is there. Both methods raise `EOFError` at the end of the input."""

    interactive: bool

    def read(self) -> str: ...

    def ask(self, question: str, default: str = "") -> str:
        """An answer; the default where none is given."""
        ...


class ScriptInput:
    """Lines of the standard input, each shown as it is read, so that the output can be followed."""

    interactive = False

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def read(self) -> str:
        return self._line(_PROMPT)

    def ask(self, question: str, default: str = "") -> str:
        return self._line(f"{_question(question, default)} ") or default

    def _line(self, prompt: str) -> str:
        line = sys.stdin.readline(_LONGEST_LINE)
        if not line:
            raise EOFError
        if not self._quiet:
            print(f"{prompt}{lines(line.rstrip())}", flush=True)
        return line.strip()


class PlainInput:
    """A terminal without prompt_toolkit: the line editor that Python has."""

    interactive = True

    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  input() edits lines by it

    def read(self) -> str:
        return input(_PROMPT).strip()

    def ask(self, question: str, default: str = "") -> str:
        return input(f"{_question(question, default)} ").strip() or default


class TerminalInput:
    """A terminal with completion, and a history that is kept in the home."""

    interactive = True

    def __init__(self, history: Path, complete: Complete) -> None:
        # Loaded here: an extra, which a script and a terminal without it do not need.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.history import FileHistory

        class Verbs(Completer):
            def get_completions(self, document: Document, complete_event: object) -> Iterator[Completion]:
                typed = document.text_before_cursor
                at = len(typed) - len(typed.split(" ")[-1])
                for each in complete(typed):
                    yield Completion(each, start_position=at - len(typed))

        class MaskedHistory(FileHistory):
            def store_string(self, string: str) -> None:
                super().store_string(hide_known(string))

        _shorten(history)
        history.touch(mode=0o600)
        self._chat: PromptSession[str] = PromptSession(
            history=MaskedHistory(str(history)), completer=Verbs(), complete_while_typing=True
        )
        self._answers: PromptSession[str] = PromptSession()

    def read(self) -> str:
        return self._chat.prompt(_PROMPT).strip()

    def ask(self, question: str, default: str = "") -> str:
        return self._answers.prompt(f"{_question(question, default)} ").strip() or default


def _question(question: str, default: str) -> str:
    return f"{question} [{lines(default)}]:" if default else f"{question}:"


def _shorten(history: Path) -> None:
    """Forget the older half of a history that has become long."""
    if history.exists() and history.stat().st_size > _LARGEST_HISTORY:
        kept = decoded(history.read_bytes())[-_LARGEST_HISTORY // 2 :]
        history.write_text(kept[kept.find("\n# ") + 1 :])


def open_input(folder: Path, complete: Complete, *, quiet: bool) -> ChatInput:
    """A terminal if a person is at one; without prompt_toolkit a plain one, and it says so."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ScriptInput(quiet=quiet)
    try:
        return TerminalInput(folder / "history", complete)
    except ImportError:
        from ratchet.extras import install_line

        note(f"For completion and a history, {install_line('chat')}.")
        return PlainInput()


@dataclass(slots=True)
class ChatPlan:
    """A plan that was talked about: what was said, the workflow that came of it, and the inputs of its last run."""

    sentence: str
    spec: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ChatSession:
    """What a chat is about, kept as one small file that is replaced after each turn.

    `changes` can be undone, the last one first: plans, and tools that `/evolve` replaced. What was said is kept without
    secrets, and inputs are not kept at all: they may hold anything.
    """

    path: Path
    changes: list[dict[str, Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> ChatSession:
        """The session that was left there, or a new one where there is none that can be read."""
        try:
            found = json.loads(path.read_text())
            return cls(path, list(found["changes"]), list(found["turns"]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError):
            note(f"What was kept of the last chat in {path} cannot be read; a new one begins.")
            return cls(path)

    @property
    def plan(self) -> ChatPlan | None:
        """The plan that is talked about now."""
        for change in reversed(self.changes):
            if "plan" in change:
                return ChatPlan(**change["plan"], inputs=self.inputs)
        return None

    def take(self, plan: ChatPlan) -> None:
        """Talk about this plan from now on."""
        self.inputs = dict(plan.inputs)
        self.change({"plan": {"sentence": plan.sentence, "spec": plan.spec}})

    def change(self, change: dict[str, Any]) -> None:
        self.changes = [*self.changes, change][-_MOST_CHANGES:]
        self.save()

    def record(self, said: str, **became: Any) -> None:
        """Keep what was said and what became of it."""
        turn = {"at": int(time.time() * 1000), "said": hide_known(said), **became}
        self.turns = [*self.turns, turn][-_MOST_TURNS:]
        self.save()

    def clear(self) -> None:
        self.changes, self.turns, self.inputs = [], [], {}
        self.save()

    def save(self) -> None:
        kept = asdict(self)
        del kept["path"], kept["inputs"]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(kept, file, ensure_ascii=False, default=str)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
