"""`ratchet spec …`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.ledger.projects import add_project
from ratchet.protocols.actions import create_protocol
from ratchet.protocols.spec import spec_schema
from ratchet.runtime import Runtime
from tests.cli.conftest import Ratchet
from tests.protocols.world import git

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def spec(**more: Any) -> dict[str, Any]:
    step = {
        "id": "01-paint",
        "name": "01-paint",
        "engine_id": None,
        "prompt_ref": "01-paint.md",
        "qa": {"policy": "full"},
        **more,
    }
    return {"steps": [step]}


def write(folder: Path, document: Any) -> str:
    path = folder / "spec.json"
    path.write_text(json.dumps(document))
    return str(path)


@ONE_DATABASE
def test_a_spec_is_checked_without_a_ledger_and_everything_wrong_is_told(
    ratchet: Ratchet, tmp_path: Path, home: Path
) -> None:
    good = ratchet("spec", "validate", write(tmp_path, spec()))
    assert (good.code, good.out) == (0, "Valid\n"), good.err
    bad = ratchet(
        "spec", "validate", write(tmp_path, spec(prompt_ref="/etc/passwd", depends_on=["nobody"])), "--json"
    )
    assert (bad.code, bad.json["valid"]) == (1, False)
    assert len(bad.json["problems"]) == 2
    file = write(tmp_path, spec())
    missing = ratchet("spec", "validate", file, "--files", str(tmp_path), "--root", ".protocols/0001-paint")
    assert (missing.code, missing.out) == (1, "step 01-paint: prompt_ref '01-paint.md' does not exist\n")
    (tmp_path / ".protocols" / "0001-paint").mkdir(parents=True)
    (tmp_path / ".protocols" / "0001-paint" / "01-paint.md").touch()
    assert (
        ratchet("spec", "validate", file, "--files", str(tmp_path), "--root", ".protocols/0001-paint").code
        == 0
    )
    for wrong in ([], [file, "--protocol", "1"], [str(tmp_path / "gone.json")], [file, "--files", file]):
        assert ratchet("spec", "validate", *wrong).code == 2, wrong
    assert not home.exists()


def test_the_schema_is_printed(ratchet: Ratchet) -> None:
    assert ratchet("spec", "schema").json == spec_schema()


@ONE_DATABASE
def test_an_audit_finds_a_missing_spec_and_makes_one_of_the_files(
    ratchet: Ratchet, tmp_path: Path, runtime: Runtime
) -> None:
    assert ratchet("spec", "audit").code == 0
    place = tmp_path / "shop"
    folder = place / ".protocols" / "0001-paint"
    folder.mkdir(parents=True)
    for name in ("plan.md", "context.md", "log.md", "00-setup.md", "01-paint.md"):
        (folder / name).write_text("What to do.\n")
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "begin")
    git(place, "branch", "0001-paint")
    with runtime.ledger.write(actor="test") as tx:
        create_protocol(
            tx, runtime, add_project(tx, "shop", local_path=str(place)), "0001-paint", planned=True
        )

    none = ratchet("spec", "audit", "--json")
    assert (none.code, none.json[0]["status"]) == (1, "missing")
    assert "has no spec" in ratchet("spec", "validate", "--protocol", "0001-paint").err
    made = ratchet("spec", "audit", "0001-paint", "--backfill")
    assert made.code == 0, made.out
    assert ("valid" in made.out, "made again" in made.out) == (True, True)
    assert ratchet("spec", "audit", "--project", "shop").code == 0
    assert ratchet("spec", "validate", "--protocol", "0001-paint", "--files", str(place)).out == "Valid\n"
    assert ratchet("spec", "audit", "0002-none").code == 1


@ONE_DATABASE
def test_an_audit_can_come_again_by_itself(ratchet: Ratchet, runtime: Runtime) -> None:
    again = ratchet("spec", "audit", "--every", "3600")
    assert (again.code, "comes again" in again.out) == (0, True), again.err
    assert [each["cron"] for each in ratchet("schedule", "list", "--json").json] == ["0 */1 * * *"]
    assert ratchet("spec", "audit", "--every", "0").code == 2
