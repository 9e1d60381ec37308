"""Ten wrong or slow tools, and what an author proposes for each: variants that must not be taken, and one that must.

The table in docs/workflow-evolution.md is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TEXT = {"text": {"type": "string"}}
_NUMBERS = {"numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 1}}


def _n(most: int) -> dict[str, Any]:
    return {"n": {"type": "integer", "minimum": 0, "maximum": most}}


@dataclass(frozen=True)
class TenthTool:
    """`wrong` variants by what is wrong with them, with a part of the reason why each is refused; `right` is the one
    that is taken, or nothing where the tool cannot be better."""

    name: str
    lacks: str
    source: str
    takes: Mapping[str, Any]
    examples: Sequence[tuple[dict[str, Any], Any]]
    calls: Sequence[dict[str, Any]]
    wrong: Mapping[str, tuple[str, str]]
    right: str | None
    comes_to: str = field(default="")

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "type": "python",
            "description": self.name,
            "input_schema": {
                "type": "object",
                "properties": dict(self.takes),
                "required": list(self.takes),
                "additionalProperties": False,
            },
            "examples": [{"input": given, "output": wanted} for given, wanted in self.examples],
            "python": {"source": self.source},
        }

    @property
    def variants(self) -> dict[str, str]:
        """In the order in which they are proposed: the wrong ones first."""
        return {
            **{name: source for name, (source, _) in self.wrong.items()},
            **({"right": self.right} if self.right else {}),
        }


_SLUG = "def run(text):\n    return text.lower().replace(' ', '_')\n"
_SLUG_RIGHT = "import re\n\n\ndef run(text):\n    return '-'.join(re.findall(r'[a-z0-9]+', text.lower()))\n"
_DEDUPE = (
    "def run(names):\n    kept = []\n    for name in names:\n        found = False\n        for each in kept:\n"
    "            if each == name:\n                found = True\n        if not found:\n            kept.append(name)\n"
    "    return kept\n"
)
_SUM = "def run(n):\n    total = 0\n    for number in range(n):\n        total += number\n    return total\n"
_MEDIAN = "def run(numbers):\n    return sorted(numbers)[len(numbers) // 2]\n"
_FIBONACCI = "def run(n):\n    return n if n < 2 else run(n - 1) + run(n - 2)\n"
_PRIME = (
    "def run(n):\n    if n < 2:\n        return False\n    divisors = 0\n    for each in range(2, n):\n"
    "        if n % each == 0:\n            divisors += 1\n    return divisors == 0\n"
)
_LEAP = "def run(year):\n    return year % 4 == 0\n"
_WORDS = "def run(text):\n    return len(text.split(' '))\n"
_GROUPS = (
    "def run(words):\n    groups = []\n    for word in words:\n        for group in groups:\n"
    "            if sorted(group[0]) == sorted(word):\n                group.append(word)\n                break\n"
    "        else:\n            groups.append([word])\n    return groups\n"
)
_WORD_LIST = {"words": {"type": "array", "items": {"type": "string"}}}
_UPPER = "def run(text):\n    return text.upper()\n"

TEN = (
    TenthTool(
        "slug",
        "wrong: fails 4 of 4 examples",
        _SLUG,
        _TEXT,
        [
            ({"text": "Hello World"}, "hello-world"),
            ({"text": "A  b"}, "a-b"),
            ({"text": "What's new?"}, "what-s-new"),
            ({"text": "  tidy me "}, "tidy-me"),
        ],
        [{"text": text} for text in ("One Two", "three", "Four five six", "Seven!", "eight nine")],
        {
            "the answers are written into it": (
                "KNOWN = {'Hello World': 'hello-world', 'A  b': 'a-b', \"What's new?\": 'what-s-new', "
                "'  tidy me ': 'tidy-me'}\n\n\ndef run(text):\n"
                "    return KNOWN.get(text, text.lower().replace(' ', '_'))\n",
                "holds the answer",
            ),
            "crashes on one word": (
                "import re\n\n\ndef run(text):\n    first, second, *rest = re.findall(r'[a-z0-9]+', text.lower())\n"
                "    return '-'.join([first, second, *rest])\n",
                "held-out inputs",
            ),
            "no example more": (
                "def run(text):\n    return text.strip().lower().replace(' ', '_')\n",
                "held-out inputs|not clearly better|answers otherwise",
            ),
        },
        _SLUG_RIGHT,
        "repaired",
    ),
    TenthTool(
        "dedupe",
        "slow: compares every pair",
        _DEDUPE,
        {"names": {"type": "array", "items": {"type": "string"}}},
        [({"names": ["a", "b", "a"]}, ["a", "b"])],
        [{"names": [f"name {at % size}" for at in range(3 * size)]} for size in (20, 25, 30)],
        {
            "strips blanks": (
                "def run(names):\n    return list(dict.fromkeys(name.strip() for name in names))\n",
                "answers otherwise",
            ),
            "sorts": ("def run(names):\n    return sorted(set(names))\n", "held-out inputs"),
        },
        "def run(names):\n    return list(dict.fromkeys(names))\n",
        "faster",
    ),
    TenthTool(
        "add_up",
        "slow: adds one by one",
        _SUM,
        _n(5000),
        [({"n": 10}, 45)],
        [{"n": n} for n in (4000, 4100, 4200)],
        {
            "wrong for large numbers": (
                "def run(n):\n    return n * (n - 1) // 2 + (n > 4000)\n",
                "held-out inputs",
            ),
            "wrong for one": ("def run(n):\n    return n * (n - 1) // 2 + (n == 1)\n", "answers otherwise"),
        },
        "def run(n):\n    return n * (n - 1) // 2\n",
        "faster",
    ),
    TenthTool(
        "median",
        "wrong: takes the upper of two",
        _MEDIAN,
        _NUMBERS,
        [
            ({"numbers": [9, 1, 2]}, 2),
            ({"numbers": [1, 2, 3, 10]}, 2.5),
            ({"numbers": [10, 20]}, 15),
            ({"numbers": [7]}, 7),
        ],
        [{"numbers": [5, 6, 7]}, {"numbers": [1, 1, 9, 9]}],
        {
            "the mean": (
                "def run(numbers):\n    return sum(numbers) / len(numbers)\n",
                "what an example shows",
            ),
            "breaks odd lengths": (
                "def run(numbers):\n    half = len(numbers) // 2\n    found = sorted(numbers)\n"
                "    return (found[half - 1] + found[half]) / 2\n",
                "what an example shows",
            ),
        },
        "def run(numbers):\n    found, half = sorted(numbers), len(numbers) // 2\n"
        "    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2\n",
        "repaired",
    ),
    TenthTool(
        "fibonacci",
        "slow: calls itself twice",
        _FIBONACCI,
        _n(16),
        [({"n": 10}, 55)],
        [{"n": n} for n in (11, 12, 13)],
        {
            "wrong at the start": (
                "def run(n):\n    a, b = 1, 1\n    for _ in range(n - 1):\n        a, b = b, a + b\n    return a\n",
                "answers otherwise",
            )
        },
        "def run(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
        "faster",
    ),
    TenthTool(
        "is_prime",
        "slow: tries every number below",
        _PRIME,
        _n(2000),
        [({"n": 7}, True), ({"n": 9}, False)],
        [{"n": n} for n in (97, 101, 111, 1009)],
        {
            "one is prime": (
                "def run(n):\n    return n > 0 and all(n % each for each in range(2, int(n**0.5) + 1))\n",
                "answers otherwise",
            ),
            "knows four primes": (
                "def run(n):\n    return n > 1 and all(n == each or n % each for each in (2, 3, 5, 7))\n",
                "answers otherwise",
            ),
        },
        "def run(n):\n    return n > 1 and all(n % each for each in range(2, int(n**0.5) + 1))\n",
        "faster",
    ),
    TenthTool(
        "leap_year",
        "wrong: forgets the centuries",
        _LEAP,
        {"year": {"type": "integer", "minimum": 1}},
        [
            ({"year": 1900}, False),
            ({"year": 2000}, True),
            ({"year": 2024}, True),
            ({"year": 2100}, False),
            ({"year": 2023}, False),
        ],
        [{"year": year} for year in (1996, 2001, 1800)],
        {
            "two centuries by name": (
                "def run(year):\n    return year % 4 == 0 and year not in (1900, 2100)\n",
                "holds the answer",
            ),
            "no century at all": (
                "def run(year):\n    return year % 4 == 0 and year % 100 != 0\n",
                "what an example shows",
            ),
        },
        "def run(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
        "repaired",
    ),
    TenthTool(
        "count_words",
        "wrong: counts blanks",
        _WORDS,
        _TEXT,
        [({"text": "a  b"}, 2), ({"text": ""}, 0), ({"text": "one two"}, 2), ({"text": "line\nbreak"}, 2)],
        [{"text": "five words are in here"}, {"text": "none"}],
        {
            "crashes without words": (
                "def run(text):\n    words = text.split()\n    return len(words) + 0 * ord(words[0][0])\n",
                "fails on|held-out inputs",
            ),
            "counts lines": (
                "def run(text):\n    return len(text.splitlines())\n",
                "what an example shows",
            ),
        },
        "def run(text):\n    return len(text.split())\n",
        "repaired",
    ),
    TenthTool(
        "group_anagrams",
        "slow: sorts every pair of words",
        _GROUPS,
        _WORD_LIST,
        [({"words": ["tea", "eat", "tan"]}, [["tea", "eat"], ["tan"]])],
        [
            {"words": [f"{chr(97 + at % 26)}{chr(97 + at // 26)}x{at % 7}" for at in range(size)]}
            for size in (30, 35)
        ],
        {
            "without capitals": (
                "def run(words):\n    groups = {}\n    for word in words:\n"
                "        groups.setdefault(''.join(sorted(word.lower())), []).append(word)\n"
                "    return list(groups.values())\n",
                "answers otherwise",
            )
        },
        "def run(words):\n    groups = {}\n    for word in words:\n"
        "        groups.setdefault(''.join(sorted(word)), []).append(word)\n    return list(groups.values())\n",
        "faster",
    ),
    TenthTool(
        "upper",
        "nothing: it is right and quick",
        _UPPER,
        _TEXT,
        [({"text": "abc"}, "ABC")],
        [{"text": "Some text"}, {"text": "more"}],
        {
            "the same in other words": ("def run(text):\n    return str.upper(text)\n", "not clearly better"),
            "only some letters": (
                "def run(text):\n    return ''.join(chr(ord(c) - 32) if 'a' <= c <= 'z' else c for c in text)\n",
                "not clearly better|answers otherwise|held-out",
            ),
        },
        None,
        "left as it is",
    ),
)
