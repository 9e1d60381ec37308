"""A plain model as a specialist: it is shown the recipe, answers with edits, and these are applied for it.

An answer has search/replace blocks, or whole files, for one or many files of the recipe. What nearly fits is repaired;
what does not fit at all goes back to the model once, with the reason.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement.checkout import read_recipe, recipe_path
from ratchet.research.measurement.inspection import compiler
from ratchet.research.sessions.prompt import fenced

_HOW = """\
# How to answer

You cannot edit files yourself: what you answer is applied to the recipe for you. Answer with one or more edits. An \
edit names its file and has the exact lines that are there now, long enough to be found only once, and the lines that \
take their place:

FILE: {path}
<<<<<<< SEARCH
the lines as they are
=======
the lines as they should be
>>>>>>> REPLACE

Or write a file as a whole, a new one too:

FILE: {path}
```
all of the file
```

Only files of the recipe can be written: {recipe}. End with one line `HYPOTHESIS: …` that says what you changed and \
why it should help."""
_SEVERAL = """

You may answer with up to {most} proposals, which are measured apart from each other: begin each with a line \
`PROPOSAL`, and end each with its own `HYPOTHESIS:` line. Every one is a change of the recipe as it is below, and not \
of another proposal; make them differ in what they try."""
_AGAIN = """\
Your answer was not applied: {reason}

Answer again, with all edits that are meant, in the form that was asked for: `FILE: path`, then search/replace blocks \
or the whole file in a fence, and at the end one line `HYPOTHESIS: …`. Nothing of your last answer was written."""
_SHOWN = 200_000
# Edits of one answer; each is looked for in a whole file.
_MOST_EDITS = 1_000
# What a file system takes as one name and, with room for the workspace, as one path; in bytes.
_NAME, _PATH = 255, 1_000
# So much of a line is compared with others.
_LIKE = 200
PROPOSALS = "proposals"
"""In the data of a session: what it proposed beside what it left in its workspace."""


@dataclass(frozen=True, slots=True)
class RecipeProposal:
    """One change of the recipe out of an answer: the files that it writes, and what is said about it."""

    texts: Mapping[str, str]
    said: str


class UnusableAnswer(Exception):
    """An answer that cannot be applied; the message says why, to the model."""


@dataclass(frozen=True, slots=True)
class RecipeEdit:
    """`old` becomes `new`; without `old`, `new` is the whole file."""

    path: str
    old: str | None
    new: str


_FILE = re.compile(
    r"^[\s#>*_`-]*(?:file|path)[\s*_`]*[:=][\s*_`\"']*(?P<path>[^\s*`\"']+)[\s*`\"']*$", re.IGNORECASE
)
_SEARCH = re.compile(r"^\s*<{5,}\s*SEARCH\b[:\s]*(?P<path>\S*)\s*$")
_MIDDLE = re.compile(r"^\s*={5,}\s*$")
_REPLACE = re.compile(r"^\s*>{5,}\s*REPLACE\s*$")
_PROPOSAL = re.compile(r"^[\s#>*_`=-]*PROPOSAL\b[\s#*_`:=\d-]*$")
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w.+-]*)\s*$")


def split_proposals(answer: str) -> list[str]:
    """The proposals in an answer, each with what is said about it. Without a line that begins one it is one."""
    lines = answer.splitlines()
    starts = [at for at, line in enumerate(lines) if _PROPOSAL.match(line)]
    if not starts:
        return [answer]
    ends = [*starts[1:], len(lines)]
    return ["\n".join(lines[start + 1 : end]) for start, end in zip(starts, ends, strict=True)]


def read_edits(answer: str, only: str | None = None) -> list[RecipeEdit]:
    """The edits in an answer, in their order. Raises `UnusableAnswer`.

    `only` is the file of a recipe that has no other, which need not be named then.
    """
    return _Reader(answer.splitlines(), only).read()


class _Reader:
    def __init__(self, lines: list[str], only: str | None) -> None:
        self._lines = lines
        self._only = only
        self._path: str | None = None
        self._at = 0
        self._edits: list[RecipeEdit] = []
        self._fences = sum(bool(_FENCE.match(line)) for line in lines)

    def read(self) -> list[RecipeEdit]:
        fences, around = 0, None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if named := _FILE.match(line):
                self._path = named["path"]
            elif found := _SEARCH.match(line):
                self._block(found["path"])
            elif fence := _FENCE.match(line):
                if fence["fence"] == around:
                    around = None
                elif self._holds_blocks(fence["fence"]):
                    around = fence["fence"]
                else:
                    fences += 1
                    self._whole(fence["fence"])
        if not self._edits:
            what = "its code is in no file that it names" if fences else "there is no edit in it"
            raise UnusableAnswer(what)
        return self._edits

    def _block(self, named: str) -> None:
        path = self._named(named)
        old = self._until(_MIDDLE, "an edit has no line =======")
        new = self._until(_REPLACE, "an edit does not end with a line >>>>>>> REPLACE")
        self._edits.append(RecipeEdit(path, "\n".join(old), "\n".join(new)))

    def _whole(self, fence: str) -> None:
        end = re.compile(rf"^\s*{re.escape(fence)}\s*$")
        named, self._path = self._path, None
        text = self._until(end, "a file does not end: its fence is never closed")
        # Code beside the point, such as an example, is no file.
        path = named or (self._only if len("\n".join(text)) and self._alone(text) else None)
        if path is not None:
            self._edits.append(RecipeEdit(path, None, "\n".join(text) + "\n"))

    def _alone(self, text: list[str]) -> bool:
        """Whether a fence without a name is all that the answer has of code, and more than a line or two of it."""
        return self._fences == 2 and len(text) > 2

    def _named(self, named: str) -> str:
        path = named or self._path or self._only
        if path is None:
            raise UnusableAnswer("an edit names no file; put a line `FILE: path` before it")
        return path

    def _until(self, end: re.Pattern[str], problem: str) -> list[str]:
        first = self._at
        while self._at < len(self._lines):
            self._at += 1
            if end.match(self._lines[self._at - 1]):
                return self._lines[first : self._at - 1]
        raise UnusableAnswer(f"{problem}; it is only half of one")

    def _holds_blocks(self, fence: str) -> bool:
        """Whether a fence is only drawn around search/replace blocks."""
        for line in self._lines[self._at :]:
            if _SEARCH.match(line):
                return True
            if line.strip().startswith(fence) or (line.strip() and not _FILE.match(line)):
                return False
        return False


def apply_edits(files: Mapping[str, str], edits: list[RecipeEdit]) -> dict[str, str]:
    """The files that change, with their new text. Raises `UnusableAnswer`."""
    if len(edits) > _MOST_EDITS:
        raise UnusableAnswer(f"it has {len(edits)} edits; write files as a whole instead")
    changed: dict[str, str] = {}
    for edit in edits:
        text = changed.get(edit.path, files.get(edit.path))
        changed[edit.path] = edit.new if edit.old is None else _replaced(edit, text)
    found = {path: text for path, text in changed.items() if files.get(path) != text}
    if not found:
        raise UnusableAnswer("it changes nothing")
    return found


def _replaced(edit: RecipeEdit, text: str | None) -> str:
    assert edit.old is not None
    if text is None or not text.strip() or not edit.old.strip():
        if text is None or not text.strip():
            return f"{edit.new}\n"
        raise UnusableAnswer(f"an edit of {edit.path} has no line to search for")
    lines, wanted = text.split("\n"), edit.old.split("\n")
    for like in (str, str.rstrip, str.strip):
        places = _places(lines, wanted, like)
        if len(places) > 1:
            raise UnusableAnswer(
                f"the lines of an edit are {len(places)} times in {edit.path}; take more lines around them"
            )
        if places:
            found = lines[places[0] : places[0] + len(wanted)]
            new = edit.new.split("\n") if edit.new else []
            fitted = new if like is not str.strip else _indented(new, wanted, found)
            return "\n".join([*lines[: places[0]], *fitted, *lines[places[0] + len(wanted) :]])
    nearest = difflib.get_close_matches(
        next(filter(str.strip, wanted))[:_LIKE], [line[:_LIKE] for line in lines], n=1
    )
    instead = f"; a line must be there as a whole, such as {nearest[0].strip()[:200]!r}" if nearest else ""
    raise UnusableAnswer(f"the lines {textwrap.shorten(edit.old, 200)!r} are not in {edit.path}{instead}")


def _places(lines: list[str], wanted: list[str], like: object) -> list[int]:
    assert callable(like)
    plain, looked = [like(line) for line in lines], [like(line) for line in wanted]
    return [at for at in range(len(plain) - len(looked) + 1) if plain[at : at + len(looked)] == looked]


def _indented(new: list[str], wanted: list[str], found: list[str]) -> list[str]:
    """Lines that were written with another indentation than the file has, moved to it."""
    pairs = [(one, other) for one, other in zip(wanted, found, strict=True) if one.strip()]
    had, has = (min((_indent(pair[side]) for pair in pairs), key=len) for side in (0, 1))
    return [has + line.removeprefix(had) if line.strip() else line for line in new]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


class RecipeAuthor:
    """An engine that only answers, as one that edits the recipe of `task`. It is asked twice at most."""

    def __init__(self, engine: Engine, task: TaskAdapter) -> None:
        self._engine = engine
        self._task = task
        self.name = engine.name
        own = engine.capabilities
        self.capabilities = Capabilities(edits_files=True, reports_usage=own.reports_usage)

    async def check(self) -> Readiness:
        return await self._engine.check()

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        ends = time.monotonic() + request.deadline_seconds
        files = await asyncio.to_thread(self._files, request.workspace)
        asked = replace(
            request,
            prompt=f"{request.prompt}\n{self._shown(files)}",
            workspace=None,
            environment={},
            readable=(),
            hidden=(),
        )
        session = await self._engine.propose(asked)
        try:
            return await self._written(request.workspace, files, session)
        except UnusableAnswer as unusable:
            reason = str(unusable)
        left = ends - time.monotonic()
        if left <= 0 or request.limits.reached_by(session.usage) is not None:
            raise self._failed(reason, session)
        again = replace(
            asked,
            prompt=_AGAIN.format(reason=reason)
            if session.resume
            else f"{asked.prompt}\n\n{_AGAIN.format(reason=reason)}",
            resume=session.resume,
            deadline_seconds=left,
            limits=request.limits.less(session.usage),
        )
        try:
            second = _together(session, await self._engine.propose(again))
        except SessionFailed as failed:
            failed.session = _together(session, failed.session)
            raise
        try:
            return await self._written(request.workspace, files, second)
        except UnusableAnswer as unusable:
            raise self._failed(str(unusable), second) from unusable

    def _failed(self, reason: str, session: Session) -> SessionFailed:
        return SessionFailed(
            Failure.BAD_OUTPUT,
            f"the model's answer cannot be applied to the recipe: {reason}",
            session=session,
            hint="a model that follows instructions better may help; the transcript has what it said",
        )

    def _files(self, directory: Path) -> dict[str, str]:
        """Every file of the recipe that is text."""
        found: dict[str, str] = {}
        for path, content in read_recipe(self._task, directory, "").items():
            try:
                found[path] = content.decode()
            except UnicodeDecodeError:
                continue
        return found

    def _shown(self, files: Mapping[str, str]) -> str:
        parts, left = (
            [self._how(files)],
            _SHOWN,
        )
        for path, text in files.items():
            shown = text[:left]
            left -= len(shown)
            cut = "" if len(shown) == len(text) else f"\n(cut: the file has {len(text)} characters)"
            parts.append(
                f"# The recipe: {path}\n\n{fenced(shown)}{cut}"
                if shown
                else f"# The recipe: {path}\n\n(not shown)"
            )
        return "\n\n".join(parts) + "\n"

    def _how(self, files: Mapping[str, str]) -> str:
        recipe = ", ".join(self._task.recipe)
        how = _HOW.format(path=next(iter(files), self._task.recipe[0]), recipe=recipe)
        most = self._task.trials_per_session
        return how + _SEVERAL.format(most=most) if most > 1 else how

    async def _written(self, directory: Path, files: Mapping[str, str], session: Session) -> Session:
        """The session, with what it answered in the files of its workspace. Raises `UnusableAnswer`.

        What it proposed beside that is in its data. A proposal that cannot be used is left out, if there is another.
        """
        found: list[RecipeProposal] = []
        unusable: list[UnusableAnswer] = []
        for answer in split_proposals(session.text)[: self._task.trials_per_session]:
            try:
                found.append(await self._proposal(directory, files, answer))
            except UnusableAnswer as problem:
                unusable.append(problem)
        if not found:
            raise unusable[0]
        first, *others = found
        await asyncio.to_thread(write_texts, directory, first.texts)
        return replace(session, text=first.said, data={**session.data, PROPOSALS: others})

    async def _proposal(self, directory: Path, files: Mapping[str, str], answer: str) -> RecipeProposal:
        # A degenerate answer may be long: nothing else waits while it is read.
        changed = await asyncio.to_thread(self._changed, directory, files, answer)
        for path, text in changed.items():
            if path.endswith(".py"):
                problem = await asyncio.to_thread(compiler.check, path, text.encode())
                if problem is not None:
                    raise UnusableAnswer(
                        f"{path} does not compile then: line {problem.line}: {problem.message}"
                    )
        return RecipeProposal(changed, _said(answer))

    def _changed(self, directory: Path, files: Mapping[str, str], answer: str) -> dict[str, str]:
        try:
            answer.encode()
        except UnicodeEncodeError:
            raise UnusableAnswer(
                "it has characters that are halves of others and cannot be written"
            ) from None
        only = next(iter(files)) if len(files) == 1 else None
        changed = apply_edits(files, [self._checked(edit) for edit in read_edits(answer, only)])
        for path in changed:
            _check_place(directory, path, changed)
        return changed

    def _checked(self, edit: RecipeEdit) -> RecipeEdit:
        try:
            return replace(edit, path=recipe_path(self._task, edit.path.removeprefix("./")))
        except Misuse as error:
            raise UnusableAnswer(f"{error}; {error.hint}") from None


def _check_place(directory: Path, path: str, changed: Mapping[str, str]) -> None:
    """Raises `UnusableAnswer` for a file that could not be written, before any other is."""
    parts = path.split("/")
    if len(path.encode()) > _PATH or any(len(part.encode()) > _NAME for part in parts):
        raise UnusableAnswer(f"the path {path[:_LIKE]}… is too long")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    taken = [each for each in above if each in changed or (directory / each).is_file()]
    if taken:
        raise UnusableAnswer(f"{path} cannot be a file, for {taken[0]} is one and no directory")
    if (directory / path).is_dir():
        raise UnusableAnswer(f"{path} is a directory and cannot be written as a file")


def _said(answer: str) -> str:
    """What an answer says beside its edits: those are no hypothesis."""
    if "hypothesis" in answer.lower():
        return answer
    lines = answer.splitlines()
    marks = [
        at for at, line in enumerate(lines) if any(each.match(line) for each in (_FILE, _SEARCH, _FENCE))
    ]
    return "\n".join(lines[: marks[0]] if marks else lines)


def _together(first: Session, second: Session) -> Session:
    return replace(second, usage=first.usage + second.usage, transcript=first.transcript + second.transcript)


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """No engine that only answers has put anything into the directory, so there are no links to follow."""
    for path, text in texts.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
