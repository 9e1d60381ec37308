"""Running the recipe and the evaluator of a shipped task as their nodes, and searching its constants."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ratchet.research
from ratchet.engines import Request
from ratchet.engines.search import SearchEngine
from ratchet.research.adapter import Program, TaskAdapter
from ratchet.research.tasks import read_task
from ratchet.sandbox import Finished, Node, Policy, run

SHIPPED = Path(ratchet.research.__file__).parent / "shipped"


@dataclass(frozen=True)
class NodeTask:
    """A shipped task whose recipe and evaluator are functions, run as its `task.toml` says."""

    adapter: TaskAdapter

    @classmethod
    def shipped(cls, name: str) -> NodeTask:
        return cls(read_task(SHIPPED / name))

    @property
    def recipe(self) -> str:
        return (self.adapter.root / "recipe.py").read_text()

    def question(self, seed: int, *, held_out: bool = False) -> Any:
        return self._evaluator(self.adapter.evaluator.prepare, {"seed": seed, "held_out": held_out})

    def trial(self, recipe: str, question: Any = None) -> Finished:
        assert self.adapter.trial is not None
        return self._run(self.adapter.trial, recipe, "", {"seed": 0, "question": question})

    def score(self, answer: Any, question: Any = None) -> Any:
        given = {"seed": 0, "held_out": False, "question": question, "trial": {"answer": answer}}
        return self._evaluator("", given)

    def measured(self, recipe: str, question: Any = None) -> Any:
        done = self.trial(recipe, question)
        assert done.ok, done.problem
        return self.score(done.value, question)

    def search(self, directory: Path, trials: int, question: Any = None) -> list[float]:
        """The scores of so many proposals of the search engine, each made from the recipe as it is shipped."""
        engine, scores = SearchEngine(), []
        resume, feedback = None, []
        for _ in range(trials):
            (directory / "recipe.py").write_text(self.recipe)
            data = {"feedback": feedback, "goal": str(self.adapter.direction)}
            session = asyncio.run(engine.propose(Request("", workspace=directory, resume=resume, data=data)))
            answer = self.measured((directory / "recipe.py").read_text(), question)
            scores.append(answer[self.adapter.score_field])
            resume, feedback = session.resume, [{"proposal": session.data["proposal"], "score": scores[-1]}]
        return scores

    def _evaluator(self, function: str, given: Any) -> Any:
        program = self.adapter.evaluator
        source = (self.adapter.root / self.adapter.evaluator_dir / program.file).read_text()
        done = self._run(program, source, function, given)
        assert done.ok, done.problem
        return done.value

    def _run(self, program: Program, source: str, function: str, given: Any) -> Finished:
        node = Node(source, function or program.function, modules=program.modules)
        policy = Policy(environment=self.adapter.environment)
        return asyncio.run(run(node, stdin=json.dumps(given).encode(), bounds=program.bounds, policy=policy))


def edited(recipe: str, **constants: object) -> str:
    """The recipe with other values for its constants."""
    for name, value in constants.items():
        lines = recipe.splitlines(keepends=True)
        number = next(at for at, line in enumerate(lines) if line.startswith(f"{name} = "))
        lines[number] = f"{name} = {value!r}\n"
        recipe = "".join(lines)
    return recipe
