"""The gate that keeps credentials out of the history, from where they can never be taken back."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.judges import Candidate, Judged
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import in_thread
from ratchet.protocols.qa.review import FindingSeverity, QaFinding, added_lines, ruled_by
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
            text = line.text.replace(b"\0", b"").decode("utf-8", "replace")
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
