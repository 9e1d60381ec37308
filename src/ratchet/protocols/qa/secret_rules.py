"""What credentials look like.

Most have a form of their own that their makers gave them. What has none is found by its name and by how random it
looks; words that stand in for a secret, and expressions that fetch one, are none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

ALLOWED = "ratchet: allow-secret"
"""A line with this mark is let through; it is still told to the reviewer."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of credential. With a `value` group, what stands there must also look random."""

    name: str
    pattern: re.Pattern[str]


def _form(name: str, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Rule:
    return Rule(name, re.compile(pattern, flags | re.ASCII))


_NAMES = r"(?:passw(?:or)?d|passphrase|secret|token(?!i[sz])|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
# What is told about a secret, such as its hash or where it lies, is none.
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
