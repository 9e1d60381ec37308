"""Plain models as researchers: what they answer becomes edits of the recipe, or goes back to them once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ratchet.engines import Failure, Request, Session, SessionFailed
from ratchet.modelserver import ModelServer, Turn, fail, say
from ratchet.research.adapter import TaskAdapter
from ratchet.research.sessions import hypothesis_of
from ratchet.research.sessions.author import RecipeAuthor, UnusableAnswer, apply_edits, read_edits
from tests.engines.conftest import Place
from tests.engines.llm.subject import LlmSubject

RECIPE = "WIDTH = 64\n\n\ndef answer(question):\n    if question:\n        return WIDTH\n    return 0\n"
FILES = {"recipe.py": RECIPE}
EDIT = "FILE: recipe.py\n<<<<<<< SEARCH\nWIDTH = 64\n=======\nWIDTH = 128\n>>>>>>> REPLACE\n"
WIDER = RECIPE.replace("64", "128")
WHOLE = f"FILE: recipe.py\n```python\n{WIDER}```\n"
SAID = "HYPOTHESIS: a wider layer should hold more\n"


def applied(answer: str, files: dict[str, str] = FILES) -> dict[str, str]:
    return apply_edits(files, read_edits(answer, next(iter(files)) if len(files) == 1 else None))


@pytest.mark.parametrize(
    "answer",
    [
        EDIT,
        f"I widen it.\n\n{EDIT}\n{SAID}",
        f"```diff\n{EDIT}```\n{SAID}",
        EDIT.replace("FILE: recipe.py\n", ""),
        EDIT.replace("FILE: recipe.py\n", "").replace("SEARCH", "SEARCH recipe.py"),
        EDIT.replace("FILE: recipe.py", "**File:** `recipe.py`"),
        EDIT.replace("WIDTH = 64\n=", "WIDTH = 64  \n="),
        WHOLE,
        WHOLE.replace("FILE: recipe.py\n", "Here it is:\n"),
        WHOLE.replace("```", "~~~"),
        f"The old code was\n\n```\nWIDTH = 64\n```\n\nand becomes\n\n{WHOLE}",
    ],
)
def test_edits_and_whole_files_are_applied(answer: str) -> None:
    assert applied(answer) == {"recipe.py": WIDER}


def test_lines_of_another_indentation_are_found_and_moved_to_it() -> None:
    old, new = "if question:\n    return WIDTH", "if question:\n    x = 2\n    return x"
    answer = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
    [text] = applied(answer).values()
    assert "    if question:\n        x = 2\n        return x\n    return 0\n" in text


def test_many_files_are_changed_at_once_and_new_ones_made() -> None:
    files = {"recipe.py": RECIPE, "lib/more.py": "DEPTH = 3\n"}
    answer = f"{EDIT}\nFILE: lib/more.py\n```\nDEPTH = 4\n```\nFILE: lib/new.py\n```\nX = 1\n```\n"
    assert applied(answer, files) == {
        "recipe.py": WIDER,
        "lib/more.py": "DEPTH = 4\n",
        "lib/new.py": "X = 1\n",
    }


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I would widen the layer.", "no edit"),
        ("", "no edit"),
        ("```\nx\n```\n```\ny\n```", "no file that it names"),
        (EDIT.partition(">>>>>>>")[0], "half"),
        (EDIT.partition("=======")[0], "half"),
        (WHOLE.removesuffix("```\n"), "never closed"),
        (EDIT.replace("64", "63"), "are not in recipe.py"),
        (EDIT.replace("WIDTH = 64", "    return"), "are not in recipe.py"),
        (EDIT.replace("WIDTH = 64", "WIDTH = 6"), "must be there as a whole, such as 'WIDTH = 64'"),
        (EDIT.replace("128", "64"), "changes nothing"),
        ("<<<<<<< SEARCH\n\n=======\nx = 1\n>>>>>>> REPLACE", "no line to search for"),
    ],
)
def test_an_answer_that_cannot_be_applied_says_why(answer: str, reason: str) -> None:
    with pytest.raises(UnusableAnswer, match=reason):
        applied(answer)


def test_lines_that_are_there_twice_are_not_guessed() -> None:
    answer = "<<<<<<< SEARCH\nX = 1\n=======\nX = 2\n>>>>>>> REPLACE"
    with pytest.raises(UnusableAnswer, match="2 times in"):
        applied(answer, {"recipe.py": "X = 1\nY = 1\nX = 1\n"})


@pytest.fixture(params=["openai", "anthropic"])
def llm(request: pytest.FixtureRequest, tmp_path: Path, model_server: ModelServer) -> LlmSubject:
    return LlmSubject(Place(tmp_path / "home"), model_server, request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "recipe.py").write_text(RECIPE)
    (made / "run.sh").write_text("exit 0\n")
    return made


def propose(llm: LlmSubject, workspace: Path, *turns: Turn) -> Session:
    task = TaskAdapter(name="widths", root=workspace, recipe=("recipe.py",))
    author = RecipeAuthor(llm.open(*turns), task)
    return asyncio.run(author.propose(Request("Improve it.", workspace=workspace)))


def test_a_model_is_shown_the_recipe_and_its_answer_is_written(llm: LlmSubject, workspace: Path) -> None:
    session = propose(llm, workspace, say(EDIT + SAID))
    assert (workspace / "recipe.py").read_text() == WIDER
    assert hypothesis_of(session.text) == "a wider layer should hold more"
    [asked] = llm.script.requests
    assert "def answer(question):" in asked.newest
    assert "<<<<<<< SEARCH" in asked.newest


def test_edits_are_no_hypothesis(llm: LlmSubject, workspace: Path) -> None:
    assert hypothesis_of(propose(llm, workspace, say(f"I widen it.\n{EDIT}")).text) == "I widen it."


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("It should be wider.", "there is no edit in it"),
        (EDIT.partition(">>>>>>>")[0], "it is only half of one"),
        (EDIT.replace("FILE: recipe.py", "FILE: run.sh"), "'run.sh' is no path of the recipe"),
        (EDIT.replace("FILE: recipe.py", "FILE: ../evaluator/evaluate.py"), "is no path of the recipe"),
        (EDIT.replace("128", "(128"), "recipe.py does not compile then: line"),
    ],
)
def test_an_answer_that_cannot_be_used_goes_back_once_with_the_reason(
    llm: LlmSubject, workspace: Path, answer: str, reason: str
) -> None:
    session = propose(llm, workspace, say(answer), say(EDIT + SAID))
    assert (workspace / "recipe.py").read_text() == WIDER
    _first, second = llm.script.requests
    assert reason in second.newest
    assert session.usage.output_tokens
    assert b"WIDTH = 128" in session.transcript


def test_a_second_answer_that_cannot_be_used_ends_the_session(llm: LlmSubject, workspace: Path) -> None:
    with pytest.raises(SessionFailed, match="there is no edit in it") as failed:
        propose(llm, workspace, say("Wider."), say("Much wider."), say(EDIT))
    assert failed.value.failure is Failure.BAD_OUTPUT
    assert len(llm.script.requests) == 2
    assert failed.value.session.transcript.count(b'"started"') == 2
    assert (workspace / "recipe.py").read_text() == RECIPE


def test_an_endpoint_that_fails_the_second_time_charges_both(llm: LlmSubject, workspace: Path) -> None:
    with pytest.raises(SessionFailed) as failed:
        propose(llm, workspace, say("Wider."), fail(401))
    assert failed.value.session.usage.output_tokens


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("FILE: recipe/model.py\n```\nX = '\ud800'\n```\n", "halves of others"),
        ("FILE: recipe/\ud800.py\n```\nX = 2\n```\n", "halves of others"),
        (f"FILE: recipe/{'a' * 300}.py\n```\nX = 2\n```\n", "is too long"),
        (f"FILE: recipe/{'a/' * 3000}x.py\n```\nX = 2\n```\n", "is too long"),
        ("FILE: recipe/model.py/x.py\n```\nX = 2\n```\n", "model.py is one and no directory"),
        ("FILE: recipe\n```\nX = 2\n```\n", "recipe is one and no directory"),
        ("FILE: recipe/sub\n```\nX = 2\n```\n", "recipe/sub is a directory"),
        (
            "FILE: recipe/a\n```\nX = 2\n```\nFILE: recipe/a/b.py\n```\nX = 2\n```\n",
            "recipe/a is one and no directory",
        ),
        ("FILE: recipe/.git/hooks/post-commit\n```\nX = 2\n```\n", "is no path of the recipe"),
        ("FILE: evaluator/evaluate.py\n```\nX = 2\n```\n", "is no path of the recipe"),
    ],
)
def test_a_file_that_cannot_be_written_makes_an_answer_unusable_and_leaves_nothing(
    llm: LlmSubject, tmp_path: Path, answer: str, reason: str
) -> None:
    directory = tmp_path / "workspace"
    (directory / "recipe" / "sub").mkdir(parents=True)
    (directory / "recipe" / "model.py").write_text("X = 1\n")
    task = TaskAdapter(name="widths", root=directory, recipe=("recipe",))
    good = "FILE: recipe/more.py\n```\nY = 1\n```\n"
    author = RecipeAuthor(llm.open(*[say(f"{good}{answer}{SAID}")] * 2), task)
    with pytest.raises(SessionFailed, match=reason) as failed:
        asyncio.run(author.propose(Request(prompt="Improve it.", workspace=directory, deadline_seconds=60)))
    assert failed.value.failure is Failure.BAD_OUTPUT
    assert sorted(each.name for each in directory.rglob("*")) == ["model.py", "recipe", "sub"]


def test_an_answer_that_repeats_itself_is_read_in_one_go() -> None:
    """Counted, not timed: looking at every line again for each fence would be 400 million looks."""
    with pytest.raises(UnusableAnswer, match="no file that it names"):
        applied("```\nx\n```\n" * 20_000)
    with pytest.raises(UnusableAnswer, match="2000 edits"):
        applied(EDIT * 2_000)
    long = f"<<<<<<< SEARCH\nX = '{'ab' * 100_000}'\n=======\nX = 1\n>>>>>>> REPLACE\n"
    with pytest.raises(UnusableAnswer, match="are not in"):
        applied(long, {"recipe.py": f"X = '{'ba' * 100_000}'\n"})
