"""The gate that keeps credentials out of the history, from where they can never be taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.judges import Candidate, Judged
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.scratch import in_thread
from ratchet.protocols.qa.added import added_lines
from ratchet.protocols.qa.findings import Finding, Severity, ruled_by
from ratchet.protocols.qa.secret_rules import ALLOWED, RULES, rules_broken
from ratchet.workspaces import Change, Repository

MOST_BYTES = 64 * 1024 * 1024
_MOST_COMMITS = 200
# A line is looked at in pieces of this length, each with the end of the one before.
_PIECE, _OVERLAP = 20_000, 6_000
_KEY_FILES = frozenset({"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass"})
_KEY_ENDINGS = (".p12", ".pfx", ".jks", ".keystore")


@dataclass(frozen=True, kw_only=True)
class SecretsGate:
    """Passes a change whose new lines hold no credentials. What it finds is told by place and rule, never by value."""

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
        findings: list[Finding] = []
        try:
            for each in self._commits(commit):
                known = {(old.rule, old.file, old.line) for old in findings}
                found = self._look(each, "" if each == commit else f" of commit {each[:12]}")
                findings += [new for new in found if (new.rule, new.file, new.line) not in known]
        except _TooMuch as error:
            return ruled_by(self, findings, passed="", error=str(error))
        secrets = sum(each.severity is Severity.BLOCKER for each in findings)
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

    def _look(self, commit: str, where: str) -> Iterator[Finding]:
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


def _finding(rule: str, path: str, number: int, where: str, *, allowed: bool) -> Finding:
    told = f"a line{where} looks like a credential ({rule})"
    if allowed:
        return Finding(rule, f"{told}, but is marked as allowed", path, number, Severity.MAJOR)
    advice = f"take it out, or mark the line with `{ALLOWED}` if it is none"
    return Finding(rule, f"{told}; {advice}", path, number)


def _key_files(changes: Sequence[Change]) -> Iterator[Finding]:
    for change in changes:
        name = change.path.rpartition("/")[2]
        if change.before is None and (name in _KEY_FILES or name.endswith(_KEY_ENDINGS)):
            yield Finding("key-file", "is a file that keys are kept in", change.path)


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, max(1, len(text)), _PIECE - _OVERLAP):
        yield text[start : start + _PIECE]
