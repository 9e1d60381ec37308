"""The gate that has a change reviewed, with everything that a reviewer needs to know beside it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from ratchet.judges import Candidate, Judge, Judged, Report, VerdictJudge
from ratchet.judges.judge import ruled
from ratchet.judges.scratch import in_thread
from ratchet.kernel import NotFound, Outcome, decoded, fingerprint
from ratchet.workspaces import Repository, TreeChange

ALLOWED = "ratchet: allow-secret"
"""A line with this mark is let through; it is still shown to the reviewer."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of credential. With a `value` group, what stands there must also look random."""

    name: str
    pattern: re.Pattern[str]


def _form(name: str, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Rule:
    return Rule(name, re.compile(pattern, flags | re.ASCII))


_NAMES = r"(?:passw(?:or)?d|passphrase|secret|token(?!i[sz])|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
# A fact about a secret, such as its hash or its place, is none.
_ABOUT = r"(?:hash|digest|sum|_id|name|url|path|file|type|header|pattern|regex|prefix|length)"
_RANDOM_BITS = 3.2
_SHORTEST = 12
_STAND_INS = re.compile(
    r"example|sample|dummy|placeholder|change.?me|replace|your|xxx|\*\*\*|redacted|foobar|test|fake|mock|not.?a.?real"
    r"|todo|none|null|secret|passw|token|12345|abcdef",
    re.IGNORECASE,
)
_EXPRESSIONS = re.compile(r"[$%{}<>()\[\]\\ ]|://|^/|^\.|^[\w-]+(?:\.[\w-]+)+$|^[a-z]+(?:[_-][a-z]+)*$")

RULES = (
    _form("private-key", r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
    _form(
        "aws-access-key", r"(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA)(?!IOSFODNN7EXAMPLE)[A-Z2-7]{16}(?![A-Z0-9])"
    ),
    _form("github-token", r"(?<!\w)(?:gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{36,251})(?!\w)"),
    _form("gitlab-token", r"(?<!\w)gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_-]{20,200}"),
    _form("slack-token", r"(?<!\w)xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,200}"),
    _form("slack-webhook", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9_/]{30,200}"),
    _form("anthropic-key", r"(?<!\w)sk-ant-[A-Za-z0-9_-]{32,200}"),
    _form(
        "openai-key",
        r"(?<!\w)sk-(?:proj-|svcacct-|admin-)?(?!ant-)(?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{40,200}",
    ),
    _form("stripe-key", r"(?<!\w)[sr]k_live_[A-Za-z0-9]{16,200}"),
    _form("google-key", r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    _form("npm-token", r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)"),
    _form("pypi-token", r"(?<!\w)pypi-AgE[A-Za-z0-9_-]{50,250}"),
    _form("sendgrid-key", r"(?<!\w)SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"),
    _form("huggingface-token", r"(?<!\w)hf_[A-Za-z0-9]{34,64}(?!\w)"),
    _form(
        "web-token", r"(?<![\w-])eyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{16,1000}"
    ),
    _form(
        "password-in-address",
        r"(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{1,100}:(?P<value>[^\s/@\"']{8,200})@",
    ),
    _form(
        "assignment",
        rf"(?<![a-z]){_NAMES}(?![a-z0-9_.-]{{0,30}}{_ABOUT})[a-z0-9_.-]{{0,30}}[\"']?\s{{0,5}}(?::=|=>|[:=])\s{{0,5}}"
        rf"[bru]?[\"'](?P<value>[^\"'\s]{{{_SHORTEST},300}})[\"']",
        re.IGNORECASE,
    ),
    _form(
        "variable",
        rf"^\s{{0,20}}(?:export |set |- )?[A-Z0-9_]{{0,40}}{_NAMES.upper()}(?![A-Z0-9_]{{0,30}}{_ABOUT.upper()})"
        rf"[A-Z0-9_]{{0,40}}\s{{0,5}}[=:]\s{{0,5}}(?P<value>[^\"'\s#]{{{_SHORTEST},300}})\s{{0,20}}$",
    ),
)


def rules_broken(text: str) -> Iterator[str]:
    """The names of the rules that a line breaks."""
    for rule in RULES:
        for found in rule.pattern.finditer(text):
            if "value" not in rule.pattern.groupindex or looks_random(found["value"]):
                yield rule.name
                break


def looks_random(value: str) -> bool:
    """Whether a value could be a real credential rather than a word, a path or an expression that fetches one."""
    if _STAND_INS.search(value) or _EXPRESSIONS.search(value):
        return False
    kinds = [any(map(kind, value)) for kind in (str.isdigit, str.isalpha)]
    return all(kinds) and entropy(value) >= _RANDOM_BITS


def entropy(value: str) -> float:
    """Bits per character, by how often each occurs."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


MOST_BYTES = 64 * 1024 * 1024
_MOST_COMMITS = 200
# A line is looked at in pieces of this length, each with the end of the one before.
_PIECE, _OVERLAP = 20_000, 6_000
_KEY_FILES = frozenset({"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass"})
_KEY_ENDINGS = (".p12", ".pfx", ".jks", ".keystore")


@dataclass(frozen=True, kw_only=True)
class SecretsGate:
    """Passes a change whose new lines hold no credentials. Findings name place and rule, never the value."""

    repository: Repository
    base: str
    name: str = "secrets"

    @cached_property
    def hash(self) -> str:
        rules = [(rule.name, rule.pattern.pattern) for rule in RULES]
        return fingerprint("secrets 1", base=self.base, rules=rules, allowed=ALLOWED)

    async def judge(self, candidate: Candidate) -> Judged:
        return await in_thread(lambda: self._judge(candidate.commit))

    def _judge(self, commit: str) -> Judged:
        findings: list[QaFinding] = []
        try:
            for each in self._commits(commit):
                known = {(old.rule, old.file, old.line) for old in findings}
                found = self._look(each, "" if each == commit else f" of commit {each[:12]}")
                findings += [new for new in found if (new.rule, new.file, new.line) not in known]
        except _TooMuch as error:
            return ruled_by(self, findings, passed="", error=str(error))
        secrets = sum(each.severity is FindingSeverity.BLOCKER for each in findings)
        return ruled_by(
            self, findings, passed="no credentials in the new lines", measurements={"secrets": float(secrets)}
        )

    def _commits(self, commit: str) -> list[str]:
        """Everything that becomes part of the history: the commit, and those between it and the base."""
        history = [entry.hash for entry in self.repository.log(commit, limit=_MOST_COMMITS)]
        if self.base not in history:
            raise _TooMuch(
                f"{commit[:12]} does not follow from {self.base[:12]} within {_MOST_COMMITS} commits"
            )
        return history[: history.index(self.base)] or [commit]

    def _look(self, commit: str, where: str) -> Iterator[QaFinding]:
        changes = self.repository.changes(self.base, commit)
        yield from _key_files(changes)
        seen = 0
        for line in added_lines(self.repository, self.base, commit, changes):
            seen += len(line.text)
            if seen > MOST_BYTES:
                raise _TooMuch(
                    f"more than {MOST_BYTES} new bytes{where} cannot be looked through for secrets"
                )
            # Without its NUL bytes, text in UTF-16 reads like any other.
            text = decoded(line.text.replace(b"\0", b""))
            for rule in dict.fromkeys(rule for piece in _pieces(text) for rule in rules_broken(piece)):
                yield _finding(rule, line.path, line.number, where, allowed=ALLOWED in text)


class _TooMuch(Exception):
    """There is more than can be looked at."""


def _finding(rule: str, path: str, number: int, where: str, *, allowed: bool) -> QaFinding:
    message = f"a line{where} looks like a credential ({rule})"
    if allowed:
        return QaFinding(rule, f"{message}, but is marked as allowed", path, number, FindingSeverity.MAJOR)
    advice = f"take it out, or mark the line with `{ALLOWED}` if it is none"
    return QaFinding(rule, f"{message}; {advice}", path, number)


def _key_files(changes: Sequence[TreeChange]) -> Iterator[QaFinding]:
    for change in changes:
        name = change.path.rpartition("/")[2]
        if change.before is None and (name in _KEY_FILES or name.endswith(_KEY_ENDINGS)):
            yield QaFinding("key-file", "is a file that keys are kept in", change.path)


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, max(1, len(text)), _PIECE - _OVERLAP):
        yield text[start : start + _PIECE]


_SHOWN = 5


class FindingSeverity(StrEnum):
    """As a reviewer has them, too. Only a blocker fails; a major one is for the reviewer to weigh."""

    BLOCKER = "blocker"
    MAJOR = "major"
    MINOR = "minor"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class QaFinding:
    """`rule` names what was looked for. The message never repeats a secret."""

    rule: str
    message: str
    file: str | None = None
    line: int | None = None
    severity: FindingSeverity = FindingSeverity.BLOCKER

    @property
    def text(self) -> str:
        where = "" if self.file is None else self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.message}" if where else self.message


def ruled_by(
    judge: Judge,
    findings: Sequence[QaFinding],
    *,
    passed: str,
    error: str | None = None,
    measurements: Mapping[str, float] | None = None,
    more: Mapping[str, Any] | None = None,
    reports: tuple[Report, ...] = (),
) -> Judged:
    """The verdict of a gate: `error` if there is one, failed for any blocker, else passed with what to look at."""
    blockers = [each for each in findings if each.severity is FindingSeverity.BLOCKER]
    others = [each for each in findings if each.severity in (FindingSeverity.MAJOR, FindingSeverity.MINOR)]
    if error is not None:
        outcome, reason = Outcome.ERROR, error
    elif blockers:
        outcome, reason = Outcome.FAILED, _listed(blockers)
    else:
        outcome, reason = Outcome.PASSED, passed
    if others and outcome is Outcome.PASSED:
        reason = f"{reason}; to be looked at: {_listed(others)}"
    document = {"findings": [asdict(each) for each in findings], **(more or {})}
    own = Report(f"{judge.name}.json", json.dumps(document).encode())
    counted = {"findings": float(len(findings)), **(measurements or {})}
    judged = ruled(judge, outcome, reason, report=own, measurements=counted)
    return Judged(judged.verdict, (own, *reports))


def _listed(findings: Sequence[QaFinding]) -> str:
    more = f" and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return "; ".join(each.text for each in findings[:_SHOWN]) + more


class AddedLine(NamedTuple):
    path: str
    number: int
    text: bytes


def added_lines(
    repository: Repository, base: str, commit: str, changes: Sequence[TreeChange]
) -> Iterator[AddedLine]:
    """Lines of `commit` that none of the changed files had before; one that only moved is not among them.

    Raises `TooLarge` for a file beyond the bounds.
    """
    known: Counter[bytes] = Counter()
    for change in changes:
        if change.before is not None and change.before.is_file:
            known.update(_lines(repository, base, change.path))
    for change in changes:
        if change.after is None or not change.after.is_file:
            continue
        for number, text in enumerate(_lines(repository, commit, change.path), start=1):
            if known[text]:
                known[text] -= 1
            else:
                yield AddedLine(change.path, number, text)


def _lines(repository: Repository, commit: str, path: str) -> list[bytes]:
    return repository.read_file(commit, path).splitlines()


FULL = """\
You are the last gate before a change becomes part of a branch. Nobody looks at it after you.

Hold the change against the step that asked for it, and against the plan that the step belongs to:
- Does it do everything that the step asks for? Something that is only announced, stubbed or left for later is not done.
- Is it right, also at the edges: empty input, errors, several callers at once?
- Do its tests prove what they claim? A test that cannot fail, or that was weakened or removed, is a blocker.
- Does it do anything that nobody asked for?
- What the gates before you ask to be looked at needs an answer: a change of the files that decide about changes passes
  only if the step asks for it and it weakens nothing.

Report what you find with the file and the line. Style alone is a note. When you are not sure that it is right, it
fails.
"""

BRIEF = """\
Keep it brief: this is a small step. Look for what is plainly wrong or missing and report only blockers and majors. It
still fails if it does not do what the step asks for.
"""


# Lines of text stand behind a sign in a patch, so nothing that a file holds can begin or end such a block.
_BINARY = re.compile(r"^GIT binary patch\n(?:(?:literal|delta) \d+\n(?:[A-Za-z]\S*\n)*\n?)+", re.MULTILINE)


def readable(patch: str) -> str:
    """The patch with a word in place of each content that is no text."""
    return _BINARY.sub("(not a text)\n", patch)


_LONGEST = 40_000
_FILES, _FEW_FILES = 1000, 100


@dataclass(frozen=True, kw_only=True)
class ReviewGate:
    """Asks `verdict`, which is shown the plan, the step, what the gates said and the feedback on earlier attempts.

    All of that comes from the base, as data: the change itself is only in the diff. A `brief` review sees the step
    alone.
    """

    verdict: VerdictJudge
    repository: Repository
    base: str
    root: str
    step: str
    prompts: tuple[str, ...]
    feedback: str = ""
    brief: bool = False
    name: str = "review"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "review 1",
            verdict=self.verdict.hash,
            base=self.base,
            root=self.root,
            step=self.step,
            prompts=self.prompts,
            feedback=self.feedback,
            brief=self.brief,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        length = len(await in_thread(lambda: candidate.diff))
        if length > self.verdict.max_diff:
            message = f"the change is too long for a review: {length} characters of {self.verdict.max_diff}"
            return ruled_by(self, [QaFinding("length", message)], passed="")
        dossier = await in_thread(lambda: "\n\n".join(self._dossier(candidate)))
        judged = await self.verdict.judge(replace(candidate, prompt=dossier))
        return replace(judged, verdict=replace(judged.verdict, judge=self.name, judge_hash=self.hash))

    def _dossier(self, candidate: Candidate) -> Iterator[str]:
        yield f"# The step {self.step}"
        step = next(filter(None, map(self._read, self.prompts)), None)
        yield step or candidate.prompt
        if not self.brief:
            for name in ("plan.md", "context.md", "log.md"):
                found = self._read(f"{self.root}/{name}")
                if found:
                    yield f"# {name}\n\n{found}"
        if candidate.finished:
            said = (f"- {each.judge}: {each.outcome}: {each.reason}" for each in candidate.finished.values())
            yield "# What the gates said\n\n" + "\n".join(said)
        if self.feedback:
            # An earlier verdict among the words would make this one unclear.
            lines = (line for line in self.feedback.splitlines() if "verdict" not in line.lower())
            yield "# What was wrong with an earlier attempt\n\n" + "\n".join(lines)
        yield "# Changed files\n\n" + "\n".join(self._changed(candidate.commit))

    def _changed(self, commit: str) -> Iterator[str]:
        changes = self.repository.changes(self.base, commit)
        most = _FEW_FILES if self.brief else _FILES
        yield from (f"- {change.path} ({change.status})" for change in changes[:most])
        if len(changes) > most:
            yield f"- and {len(changes) - most} more"

    def _read(self, path: str) -> str | None:
        try:
            content = self.repository.read_file(self.base, path)
        except NotFound:
            return None
        return decoded(content)[:_LONGEST]
