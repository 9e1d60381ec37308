"""Steps of a workflow file: who, in which order, and how often again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.protocols.codemachine import WorkspaceInvalid, read_workspace, to_protocol_spec
from ratchet.protocols.spec import ProtocolSpec, QaPolicy, spec_problems
from tests.protocols.codemachine.workspaces import PACKAGE, write


def house(root: Path, steps: str, more: str = "", **choice: Any) -> ProtocolSpec:
    source = f"export default {{ {more} steps: [{steps}] }};"
    files = {**PACKAGE, "templates/workflows/house.workflow.js": source}
    spec = to_protocol_spec(read_workspace(write(root, files), **choice))
    assert spec_problems(spec) == []
    return spec


def names(spec: ProtocolSpec) -> list[str]:
    return [step.called for step in spec.steps]


def test_a_workflow_decides_order_names_engines_and_headings(tmp_path: Path) -> None:
    spec = to_protocol_spec(read_workspace(write(tmp_path, PACKAGE)))
    assert names(spec) == ["00-survey", "01-draw", "02-lay", "03-tools", "04-look-again"]
    draw = spec.steps[1]
    assert (draw.engine_id, draw.metadata["agent"]["name"], draw.metadata["heading"]) == (
        "claude",
        "Drawer",
        "Before",
    )


def test_a_loop_counts_like_codemachine_and_leaves_out_what_is_done_once(tmp_path: Path) -> None:
    """Headings count as entries: four back from the check is `lay`, the first step of the work."""
    check = to_protocol_spec(read_workspace(write(tmp_path, PACKAGE))).steps[-1]
    [loop] = check.policies
    assert (loop["step_back"], loop["max_iterations"], loop["skip_steps"]) == (2, 7, [0, 1, 3])


def test_a_loop_does_not_begin_with_a_step_that_it_leaves_out(tmp_path: Path) -> None:
    steps = "resolveStep('survey'), resolveStep('tools', { executeOnce: true }), resolveStep('lay'), \
        resolveModule('look-again', { loopSteps: 2 })"
    [loop] = house(tmp_path, steps).steps[-1].policies
    assert (loop["step_back"], loop["skip_steps"]) == (1, [1])


def test_a_loop_that_goes_back_beyond_the_start_begins_there(tmp_path: Path) -> None:
    steps = "resolveStep('survey'), resolveModule('look-again', { loopSteps: 9 })"
    assert house(tmp_path, steps).steps[-1].policies[0]["step_back"] == 1


def test_a_loop_with_nothing_to_go_back_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid, match="no step to go back to"):
        house(tmp_path, "resolveStep('survey', { executeOnce: true }), resolveModule('look-again')")


def test_a_module_that_checks_is_reviewed_by_its_own_prompt(tmp_path: Path) -> None:
    check = to_protocol_spec(read_workspace(write(tmp_path, PACKAGE))).steps[-1]
    assert check.qa.policy is QaPolicy.FULL
    assert check.qa.prompt == "prompts/04-look-again.review.md"
    assert check.kind == "qa"


def test_an_agent_may_do_several_steps(tmp_path: Path) -> None:
    spec = house(tmp_path, "resolveStep('lay'), resolveStep('tools'), resolveStep('lay')")
    assert names(spec) == ["00-lay", "01-tools", "02-lay"]
    assert [step.id for step in spec.steps] == ["00-lay", "tools", "02-lay"]
    assert spec.steps[0].outputs.aux["codemachine"] != spec.steps[2].outputs.aux["codemachine"]


def test_a_loop_leaves_out_every_step_of_a_skipped_agent(tmp_path: Path) -> None:
    steps = "resolveStep('lay'), resolveStep('tools'), resolveStep('lay'), resolveStep('survey'), \
        resolveModule('look-again', { loopSteps: 3, loopSkip: ['lay'] })"
    assert house(tmp_path, steps).steps[-1].policies[0]["skip_steps"] == [0, 2]


def test_a_trigger_module_is_a_step_that_calls_another(tmp_path: Path) -> None:
    modules = "module.exports = [{ id: 'gate', promptPath: 'prompts/check.md', \
        behavior: { type: 'trigger', action: 'mainAgentCall', triggerAgentId: 'lay' } }];"
    write(tmp_path, {**PACKAGE, "config/modules.js": modules})
    source = "export default { steps: [resolveStep('lay'), resolveModule('gate')] };"
    write(tmp_path, {"templates/workflows/house.workflow.js": source})
    lay, gate = to_protocol_spec(read_workspace(tmp_path)).steps
    assert lay.policies == ()
    assert [policy["trigger_agent_id"] for policy in gate.policies] == ["lay"]


def test_a_folder_is_a_step_for_each_numbered_file(tmp_path: Path) -> None:
    agents = "module.exports = [{ id: 'wing', type: 'folder', engine: 'codex' }];"
    files = {
        **PACKAGE,
        "config/main.agents.js": agents,
        "prompts/templates/wing/02-walls.md": "Walls.",
        "prompts/templates/wing/01 - ground floor.md": "Ground.",
        "prompts/templates/wing/notes.md": "Not a step.",
        "templates/workflows/house.workflow.js": "const more = { model: 'm' };\n"
        "export default { steps: [...resolveFolder('wing', more)] };",
    }
    spec = to_protocol_spec(read_workspace(write(tmp_path, files)))
    assert names(spec) == ["00-ground-floor", "01-walls"]
    assert [(step.engine_id, step.model) for step in spec.steps] == [("codex", "m")] * 2


TRACKS = "tracks: { question: 'How big?', options: { small: {}, large: {} } }, \
    conditionGroups: [{ id: 'g', conditions: { has_roof: {}, has_cellar: {} } }],"
CHOSEN = "resolveStep('survey'), resolveStep('draw', { tracks: ['large'] }), \
    resolveStep('lay', { conditions: ['has_roof'] }), \
    resolveStep('tools', { conditionsAny: ['has_roof', 'has_cellar'] })"


@pytest.mark.parametrize(
    ("track", "conditions", "ids"),
    [
        ("small", [], ["survey"]),
        ("large", [], ["survey", "draw"]),
        ("small", ["has_roof"], ["survey", "lay", "tools"]),
        ("large", ["has_cellar"], ["survey", "draw", "tools"]),
    ],
)
def test_tracks_and_conditions_decide_what_is_left(
    tmp_path: Path, track: str, conditions: list[str], ids: list[str]
) -> None:
    spec = house(tmp_path, CHOSEN, TRACKS, track=track, conditions=conditions)
    assert [step.id for step in spec.steps] == ids


def test_the_template_says_what_was_chosen(tmp_path: Path) -> None:
    write(
        tmp_path,
        {".codemachine/template.json": '{"selectedTrack": "large", "selectedConditions": ["has_roof"]}'},
    )
    assert [step.id for step in house(tmp_path, CHOSEN, TRACKS).steps] == ["survey", "draw", "lay", "tools"]


def test_a_track_that_must_be_chosen_and_was_not_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid, match="depends on the track \\(large\\)") as caught:
        house(tmp_path, CHOSEN, TRACKS)
    assert caught.value.file == "templates/workflows/house.workflow.js"
    assert "selectedTrack" in str(caught.value.hint)


@pytest.mark.parametrize("choice", [{"track": "huge"}, {"track": "small", "conditions": ["has_moat"]}])
def test_a_choice_that_the_workflow_does_not_offer_is_refused(tmp_path: Path, choice: dict[str, Any]) -> None:
    with pytest.raises(WorkspaceInvalid, match=r"house\.workflow\.js: it has no (track|condition)"):
        house(tmp_path, CHOSEN, TRACKS, **choice)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("resolveStep('nobody')", "no main agent 'nobody'"),
        ("resolveModule('nothing')", "no module 'nothing'"),
        ("resolveFolder('lay')", "no folder 'lay'"),
        ("resolveStep('lay', { notCompletedFallback: 'nobody' })", "no main agent 'nobody' to fall back to"),
        ("resolveStep('lay', 'fast')", "must be an object"),
        ("resolveStep('lay', { executeOnce: 'yes' })", "must be true or false"),
        ("resolveModule('look-again', { loopSteps: 'two' })", "must be a whole number"),
        ("resolveStep()", "must be given a text"),
        ("{ id: 'lay' }", "must be resolveStep"),
        ("controller('boss')", "must be resolveStep"),
        ("somethingElse('lay')", "not a constant"),
    ],
)
def test_what_a_workflow_gets_wrong_is_told_with_its_line(tmp_path: Path, steps: str, told: str) -> None:
    with pytest.raises(WorkspaceInvalid) as caught:
        house(tmp_path, f"\n\n{steps}")
    assert caught.value.line == 3
    assert told in str(caught.value)


@pytest.mark.parametrize("steps", ["", "separator('nothing here')"])
def test_a_workflow_without_steps_is_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(WorkspaceInvalid, match="no step is left"):
        house(tmp_path, steps)


def test_functions_of_workflows_may_be_imported_under_other_names(tmp_path: Path) -> None:
    source = """import { resolveStep as step } from 'codemachine';
    const { separator } = require('codemachine');
    const steps = [separator('x'), step('lay')];
    export default { name: 'House', controller: controller('boss', {}), steps };"""
    files = {**PACKAGE, "templates/workflows/house.workflow.js": source}
    assert names(to_protocol_spec(read_workspace(write(tmp_path, files)))) == ["00-lay"]


def test_a_controller_does_no_step(tmp_path: Path) -> None:
    files = {path: text for path, text in PACKAGE.items() if "workflows" not in path}
    assert "boss" not in [step.id for step in to_protocol_spec(read_workspace(write(tmp_path, files))).steps]
