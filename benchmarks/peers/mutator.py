"""The stochastic model of the comparison: one server and one distribution of answers for every side.

It reads the program that it is to change and those that it is shown beside it from the prompt, whoever wrote that, and
answers in a form that all sides read: search/replace blocks, a name, a hypothesis.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.peers.problems import Problem, gene
from ratchet.modelserver import ModelServer, Turn, fail, say

NAME = "mutator"
# How often the answer is no program, and how often it takes lines from another program that the prompt shows.
_BROKEN, _CROSSED = 0.1, 0.3
_GENE = re.compile(r"^[+ ]?(G\d\d) = \((-?[\d.]+), (-?[\d.]+)\)$", re.MULTILINE)
_CURRENT = re.compile(r"^# (?:current program|the recipe: recipe\.py)$", re.IGNORECASE | re.MULTILINE)


class Mutator:
    """Answers so many calls. It refuses further ones, with an error if that `ends` the work of whoever asks."""

    def __init__(self, problem: Problem, seed: int, calls: int, *, ends: bool) -> None:
        self._problem = problem
        self._chance = random.Random(f"{problem.name}/{seed}")
        self._most = calls
        self._ends = ends
        self.calls = 0
        self.refused = False

    def answer(self, body: dict[str, Any]) -> Turn:
        """The server asks for one answer at a time."""
        if self.calls >= self._most:
            self.refused = True
            return (
                fail(401, message="there were calls enough")
                if self._ends
                else say("There were calls enough.")
            )
        self.calls += 1
        current, others = _read(body)
        chance = self._chance
        if chance.random() < _BROKEN:
            return say("I would move one of them a little further to the left.")
        changed: dict[str, tuple[float, float]] = {}
        if others and chance.random() < _CROSSED:
            other = chance.choice(others)
            changed = {
                name: other[name] for name in other if chance.random() < 0.5 and other[name] != current[name]
            }
        low, high = self._problem.reach
        step = self._problem.step * (high - low) * math.exp(chance.gauss(-0.7, 0.9))
        for name in chance.sample(sorted(current), chance.choice((1, 1, 2, 3))):
            x, y = current[name]
            changed[name] = (
                min(high, max(low, x + chance.gauss(0, step))),
                min(high, max(low, y + chance.gauss(0, step))),
            )
        blocks = "\n".join(_block(name, current[name], pair) for name, pair in changed.items())
        return say(
            f"<NAME>\nmoved_{self.calls}\n</NAME>\n\n<DESCRIPTION>\nMoved.\n</DESCRIPTION>\n\n<DIFF>\n{blocks}\n</DIFF>\n"
            f"HYPOTHESIS: these lines may be better elsewhere, try {self.calls}\n"
        )


def _block(name: str, old: tuple[float, float], new: tuple[float, float]) -> str:
    at = int(name[1:])
    return f"<<<<<<< SEARCH\n{gene(at, old)}\n=======\n{gene(at, new)}\n>>>>>>> REPLACE"


Genes = dict[str, tuple[float, float]]


def _read(body: dict[str, Any]) -> tuple[Genes, list[Genes]]:
    """The genes of the program to be changed, and those of others: whole programs, or patches of this one."""
    for message in reversed(body["messages"]):
        content = message["content"]
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        headings = list(_CURRENT.finditer(text))
        if not headings:
            continue
        current = _genes(text[headings[-1].end() :])
        before = text[: headings[-1].start()]
        others = [
            found for part in re.split(r"^G00 = |^@@", before, flags=re.MULTILINE) if (found := _genes(part))
        ]
        return current, [each for each in others if each != current]
    raise ValueError(f"no program to be changed in {str(body)[-300:]}")


def _genes(text: str) -> Genes:
    """Each gene once, as it stands first."""
    found: Genes = {}
    for name, x, y in _GENE.findall(text):
        found.setdefault(name, (float(x), float(y)))
    return found


@contextmanager
def open_mutator(problem: Problem, seed: int, calls: int, *, ends: bool) -> Iterator[tuple[Mutator, str]]:
    """The model, and where it listens."""
    mutator = Mutator(problem, seed, calls, ends=ends)
    with ModelServer() as server:
        server.script(NAME, mutator.answer)
        yield mutator, server.openai_url(NAME)
