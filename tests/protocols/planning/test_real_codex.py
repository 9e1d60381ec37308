"""A plan by the real Codex CLI, which looks around in a checkout; only the model is scripted."""

from __future__ import annotations

import pytest

from ratchet.kernel import RunStatus
from ratchet.modelserver import answer, call
from tests.engines.contract import KEY
from tests.protocols.planning.conftest import NAME, Desk
from tests.protocols.planning.plans import plan, step

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("url", ["sqlite"], indirect=True)]


@pytest.mark.soak
def test_codex_plans_in_a_checkout_that_is_thrown_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY)
    script = desk.server.script(
        "codex-planner",
        [
            call("exec_command", cmd="cat README.md && echo spoiled > README.md && echo new > new.txt"),
            answer(plan(step("00-setup.md"), step("01-greet.md", title="Greet"))),
        ],
    )
    more = (
        f'[engines.codex]\nbase_url = "{desk.server.openai_url("codex-planner")}"\nmodel = "gpt-5.5"\n'
        'key_variable = "MODEL_KEY"\n'
    )
    desk.open(more=more, **{"protocols.planner": "codex"})
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert [each.name for each in desk.steps(planned)] == ["00-setup", "01-greet"]
    assert "# A project" in script.requests[1].said
    assert desk.git("show", f"{NAME}:README.md") == "# A project"
    assert all(
        path.startswith(".protocols/") for path in desk.git("diff", "--name-only", "main", NAME).splitlines()
    )
    [told] = desk.events(planned, "planned")
    assert (told.data["engine"], told.data["models"]["planning"]) == ("codex", "gpt-5.5")
