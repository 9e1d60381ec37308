"""Names of protocols: safe as a branch, a directory and a part of addresses, and never given twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ratchet.kernel import Misuse
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.projects import add_project, get_project
from ratchet.ledger.protocols import add_protocol
from ratchet.ledger.runs import create_run
from ratchet.projects.clone import open_clone
from ratchet.protocols.names import (
    check_name,
    create_numbered,
    highest_taken,
    next_name,
    number_of,
    numbered,
    require_number,
    slug_of,
)
from ratchet.runtime import Runtime
from tests.protocols.world import git, make_project, make_remote


@pytest.mark.parametrize(
    ("description", "slug"),
    [
        ("Add login", "add-login"),
        ("  Größere Äpfel, bitte! ", "groere-apfel-bitte"),
        ("../../etc; rm -rf '/'", "etc-rm-rf"),
        ("日本語", "task"),
        ("", "task"),
        ("a" * 200, "a" * 40),
        ("one two three four five six seven eight nine ten", "one-two-three-four-five-six-seven-eight"),
    ],
)
def test_a_slug_is_made_of_the_first_words(description: str, slug: str) -> None:
    assert slug_of(description) == slug
    check_name(numbered(7, slug))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0001 greet",
        "0001-a..b",
        "../0001-a",
        "0001/a",
        "-0001-a",
        "0001-a.lock",
        "0001-'a'",
        '0001-"a"',
        "0001-`a`",
        "0001-a\n",
        "0001-a\0",
        "0001-a\x1b",
        "0001-Ä",
        "0001-a~1",
        "0001-a^",
        "0001-a:b",
        "0001-a?",
        "0001-a*",
        "0001-a[",
        "0001-a\\b",
        "0001-a@{b}",
        ".0001-a",
        "0001-a.",
        "0001-" + "a" * 100,
    ],
)
def test_a_name_that_is_not_safe_everywhere_is_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(Misuse) as refused:
        check_name(name)
    assert "0007-add-login" in (refused.value.hint or "")


def test_a_number_is_four_digits_in_front() -> None:
    assert (number_of("0042-a"), number_of("42-a"), number_of("a-0042"), number_of("00042-a")) == (
        42,
        None,
        None,
        None,
    )
    assert require_number("0042-a") == 42
    with pytest.raises(Misuse, match="has no number"):
        require_number("my-import")
    with pytest.raises(Misuse, match="10000"):
        numbered(10_000, "a")


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_next_number_is_above_those_of_the_ledger_the_base_and_every_branch(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    remote = make_remote(tmp_path)
    project_id = make_project(runtime, remote)
    with ledger.read() as tx:
        project = get_project(tx, project_id)
    with open_clone(runtime, project) as clone:
        assert highest_taken(clone, "main") == 0
        git(remote, "branch", "0003-pushed", "main")
        assert highest_taken(clone, "main") == 3
        git(clone.path, "branch", "0005-local")
        assert highest_taken(clone, "main") == 5
        seed = tmp_path / "seed"
        (seed / ".protocols" / "0008-merged").mkdir(parents=True)
        (seed / ".protocols" / "0008-merged" / "plan.md").write_text("old\n")
        git(seed, "add", ".")
        git(seed, "commit", "-qm", "an old plan")
        git(seed, "push", "-q", str(remote), "HEAD:main")
        above = highest_taken(clone, "main")
    assert above == 8
    with ledger.write() as tx:
        assert next_name(tx, project_id, "x", above=above) == "0009-x"
        add(tx, project_id, "0011-own")
        assert next_name(tx, project_id, "x", above=above) == "0012-x"


def test_planners_at_once_never_get_the_same_number(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project_id = add_project(tx, "demo")
    together = Barrier(4)

    def create(number: int) -> str:
        together.wait(timeout=60)
        return create_numbered(
            ledger.write, project_id, f"task-{number % 2}", lambda tx, name: add(tx, project_id, name)
        )

    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(create, range(4)))
    assert sorted(map(number_of, names)) == [1, 2, 3, 4]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_name_that_somebody_takes_meanwhile_is_passed_over(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project_id = add_project(tx, "demo")
    tries: list[str] = []

    def create(tx: Transaction, name: str) -> str:
        tries.append(name)
        if len(tries) == 1:
            # As somebody does who names a protocol just so and commits first.
            add(tx, project_id, name, number=None)
            tx.connection.commit()
        return add(tx, project_id, name)

    assert create_numbered(ledger.write, project_id, "x", create) == "0002-x"
    assert tries == ["0001-x", "0002-x"]


def add(tx: Transaction, project_id: int, name: str, **more: object) -> str:
    run_id = create_run(tx, "protocol", name, project_id=project_id)
    add_protocol(tx, run_id, project_id, name, base_branch="main", **{"number": number_of(name), **more})
    return name
