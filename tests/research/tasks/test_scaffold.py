"""A new task works as it is, explains every key, and can be improved."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Request
from ratchet.engines.search import SearchEngine
from ratchet.kernel import Conflict, Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks import find_task, initial_files, pin_task, read_task, scaffold
from ratchet.research.tasks.tables import tables
from ratchet.sandbox import Node, run
from tests.research.tasks.folders import Folder


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return scaffold("mine", tmp_path)


def test_it_is_a_whole_task(made: Path, tmp_path: Path) -> None:
    assert made == tmp_path / "mine"
    task = find_task(str(made))
    assert (task.name, task.direction, [each.name for each in task.roster]) == ("mine", "min", ["formula"])
    assert set(initial_files(task)) == {"recipe.py"}
    assert pin_task(task, tmp_path / "run").name == "mine"
    assert (made / task.knowledge_dir / "INIT.md").is_file()
    assert task.roster[0].preamble.startswith("You work on the formula")


@pytest.mark.parametrize("variant", ["single", "strict"])
def test_its_variants_can_be_read(made: Path, variant: str) -> None:
    assert read_task(made, variant).variant == variant


def test_the_name_is_put_wherever_it_belongs(made: Path) -> None:
    texts = [path.read_text() for path in made.rglob("*") if path.is_file()]
    assert not any("NAME_OF_THE_TASK" in text for text in texts)
    assert "ratchet research run ./mine" in (made / "README.md").read_text()


def test_its_description_has_every_key_of_every_table(made: Path) -> None:
    text = (made / "task.toml").read_text()
    parts = re.split(r"^#*\[+([\w.]+)\]+$", text, flags=re.M)[1:]
    keys = {
        name.partition(".")[0]: set(re.findall(r"^#*(\w+) = ", body, flags=re.M))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
    # What runs a function is shown once; an application is a command.
    keys["apply"] |= {"function", "file", "modules"}
    assert {name: keys.get(name) for name in tables()} == {
        name: set(table.model_fields) for name, table in tables().items()
    }


def test_every_key_that_it_shows_may_be_used(made: Path) -> None:
    folder = Folder(made)
    for place in ("inputs/x", "held_out/x", "run_trial.sh"):
        folder.put(place, "")
    folder.put("tools.py", "def count_lines(given):\n    return 0\n")
    text = (made / "task.toml").read_text()
    # One # is before what may be used as it stands, two before what excludes something else.
    folder.toml(re.sub(r"^#(?=[\w\[])", "", text, flags=re.M))
    task = folder.read()
    assert (task.max_trials, task.tool_commands[0].name) == (200, "count_lines")


@pytest.mark.parametrize("name", ["", "Big", "a/b", "..", "a b", "-a", "x" * 100])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse, match="a task cannot be called"):
        scaffold(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(made: Path, tmp_path: Path) -> None:
    (made / "recipe.py").write_text("mine = 1\n")
    with pytest.raises(Conflict, match="exists already"):
        scaffold("mine", tmp_path)
    assert (made / "recipe.py").read_text() == "mine = 1\n"


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Conflict, match="exists already"):
        scaffold("mine", tmp_path)


async def call(path: Path, function: str, given: Any) -> Any:
    ended = await run(Node(path, function), stdin=json.dumps(given).encode())
    assert ended.ok, ended.stderr
    return json.loads(ended.stdout)


async def measured(task: TaskAdapter, *, seed: int, held_out: bool) -> dict[str, Any]:
    """One measurement, as a run takes it: the evaluator asks, the recipe answers, the evaluator scores."""
    assert task.trial is not None
    evaluator = task.root / task.evaluator_dir / task.evaluator.file
    question = await call(evaluator, task.evaluator.prepare, {"seed": seed, "held_out": held_out})
    given = {"seed": seed, "question": question}
    answer = await call(task.root / task.trial.file, task.trial.function, given)
    asked = {**given, "held_out": held_out, "candidate": None, "trial": {"seed": seed, "answer": answer}}
    scored: dict[str, Any] = await call(evaluator, task.evaluator.function, asked)
    return scored


def test_its_baseline_can_be_measured_in_the_sandbox(made: Path) -> None:
    task = read_task(made)

    async def both() -> list[dict[str, Any]]:
        return [await measured(task, seed=1, held_out=each) for each in (False, False, True)]

    first, again, held_out = asyncio.run(both())
    assert first == again
    assert first != held_out
    assert first[task.score_field] > 0.1
    assert set(task.columns) == set(first["measurements"])


@pytest.mark.parametrize("answer", [None, [], [1.0], ["x"] * 200, [True] * 200, {"a": 1}])
def test_its_evaluator_refuses_an_answer_that_is_none(made: Path, answer: Any) -> None:
    names: dict[str, Any] = {}
    exec((made / "evaluator/score.py").read_text(), names)
    question = names["prepare"]({"seed": 0, "held_out": False})
    assert "invalid" in names["score"]({"question": question, "trial": {"answer": answer}})


def test_the_search_engine_improves_it(made: Path) -> None:
    names: dict[str, Any] = {}
    exec((made / "evaluator/score.py").read_text(), names)
    question = names["prepare"]({"seed": 0, "held_out": False})
    original = (made / "recipe.py").read_text()

    def score() -> float:
        recipe: dict[str, Any] = {}
        exec((made / "recipe.py").read_text(), recipe)
        answer = recipe["approximate"]({"seed": 0, "question": question})
        error: float = names["score"]({"question": question, "trial": {"answer": answer}})["error"]
        return error

    async def search(trials: int) -> list[float]:
        engine, resume = SearchEngine(), None
        told: list[dict[str, Any]] = []
        scores: list[float] = []
        for _ in range(trials):
            (made / "recipe.py").write_text(original)
            data = {"feedback": told, "goal": "min"}
            session = await engine.propose(Request("", workspace=made, resume=resume, data=data))
            scores.append(score())
            told = [{"proposal": session.data["proposal"], "score": scores[-1]}]
            resume = session.resume
        return scores

    before = score()
    assert min(asyncio.run(search(40))) < before / 4
