"""The gate that holds a change to its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import Outcome, Verdict
from ratchet.protocols.qa.contract import ContractGate
from tests.protocols.qa.ground import FILES, ROOT, Ground


def verdict(ground: Ground, commit: str, **known: Any) -> Verdict:
    gate = ContractGate(repository=ground.repository, base=ground.base, root=ROOT, **known)
    return ground.ask(gate, commit).verdict


def test_work_passes_and_the_log_and_the_context_may_grow(ground: Ground) -> None:
    log = FILES[f"{ROOT}/log.md"] + "- worked\n"
    commit = ground.change(
        {"hello.txt": "hello\n", f"{ROOT}/log.md": log, f"{ROOT}/context.md": "Greeted.\n"}
    )
    said = verdict(ground, commit)
    assert said.passed, said.reason
    assert said.measurements["touched"] == 0.0


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (f"{ROOT}/plan.md", "# Another plan\n"),
        (f"{ROOT}/plan.md", None),
        (f"{ROOT}/00-setup.md", "nothing to do\n"),
        (f"{ROOT}/01-work.md", "Do nothing.\n"),
        (f"{ROOT}/02-more.md", "a step of my own\n"),
        (f"{ROOT}/log.md", "- rewritten\n"),
        (f"{ROOT}/log.md", None),
        (f"{ROOT}/context.md", None),
        (f"{ROOT}/.tmp/scratch", "x\n"),
        (".protocols/0002-other/plan.md", "mine now\n"),
        ("prompts/step.md", "easier\n"),
    ],
)
def test_what_was_agreed_on_may_not_change(ground: Ground, path: str, content: str | None) -> None:
    ground.settle({"prompts/step.md": "hard\n"})
    commit = ground.change({"hello.txt": "hello\n", path: content})
    said = verdict(ground, commit, held=frozenset({"prompts/step.md"}))
    assert (said.outcome, said.measurements["touched"]) == (Outcome.FAILED, 1.0)
    assert path in said.reason


def test_the_plan_cannot_be_edited_through_a_link(ground: Ground) -> None:
    def edit(directory: Path) -> None:
        (directory / "notes.md").symlink_to(f"{ROOT}/plan.md")
        (directory / "notes.md").write_text("# An easier plan\n")

    said = verdict(ground, ground.work(edit))
    assert said.outcome is Outcome.FAILED
    assert f"{ROOT}/plan.md" in said.reason


@pytest.mark.parametrize("name", ["plan.md", "log.md", "context.md"])
def test_a_file_of_the_protocol_cannot_become_a_link(ground: Ground, name: str) -> None:
    def swap(directory: Path) -> None:
        (directory / "elsewhere.md").write_text("# An easier plan\n")
        (directory / ROOT / name).unlink()
        (directory / ROOT / name).symlink_to("../../elsewhere.md")

    said = verdict(ground, ground.work(swap))
    assert (said.outcome, said.measurements["touched"]) == (Outcome.FAILED, 1.0)


def test_the_folder_itself_cannot_become_a_link(ground: Ground) -> None:
    def swap(directory: Path) -> None:
        (directory / ".protocols").rename(directory / "moved")
        (directory / ".protocols").symlink_to("moved")

    said = verdict(ground, ground.work(swap))
    assert said.outcome is Outcome.FAILED
    assert said.measurements["touched"] >= len(FILES) - 1


@pytest.mark.parametrize("files", [{f"{ROOT}/context.md": "Thought about it.\n"}, {}])
def test_a_step_that_is_to_do_work_must_do_some(ground: Ground, files: dict[str, str]) -> None:
    commit = ground.change(files)
    said = verdict(ground, commit)
    assert (said.outcome, said.measurements["touched"]) == (Outcome.FAILED, 0.0)
    assert "changed nothing outside" in said.reason
    assert verdict(ground, commit, must_change=False).passed


def test_outputs_may_be_written_where_the_spec_says(ground: Ground) -> None:
    place = f"{ROOT}/outputs/01.md"
    commit = ground.change({"hello.txt": "hello\n", place: "what it said\n"})
    assert verdict(ground, commit, outputs=frozenset({place})).passed
    assert not verdict(ground, commit).passed


@pytest.mark.parametrize(
    "path",
    ["quality-report.md", "docs/quality-report.md", "a/__pycache__/b.txt", "main.py.orig", ".DS_Store"],
)
def test_nothing_is_left_lying_about(ground: Ground, path: str) -> None:
    commit = ground.change({"hello.txt": "hello\n", path: "x\n"})
    said = verdict(ground, commit)
    assert (said.outcome, said.measurements["touched"]) == (Outcome.FAILED, 0.0)
    assert path in said.reason
    ground.settle({path: "was there before\n"})
    assert verdict(ground, ground.change({path: "changed\n"})).passed


def test_everything_that_decides_is_in_the_hash(ground: Ground) -> None:
    def gate(**known: Any) -> str:
        given = {"base": ground.base, "root": ROOT, **known}
        return ContractGate(repository=ground.repository, **given).hash

    others = [
        gate(base="b" * 40),
        gate(root=".protocols/0002-other"),
        gate(held=frozenset({"a"})),
        gate(outputs=frozenset({"a"})),
        gate(closed=frozenset()),
        gate(closed=frozenset({"a"})),
        gate(must_change=False),
    ]
    assert len({gate(), *others}) == 8
    assert gate() == gate()
