"""What the files of a workspace are understood to say, and which workflow is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.protocols.codemachine import CodeMachine, WorkspaceInvalid, read_workspace, to_protocol_spec
from ratchet.protocols.spec import ProtocolSpec, QaPolicy, spec_problems
from tests.protocols.codemachine.workspaces import PACKAGE, PLAIN, write


def spec_of(root: Path, files: dict[str, str], **choice: Any) -> ProtocolSpec:
    spec = to_protocol_spec(read_workspace(write(root, files), **choice))
    assert spec_problems(spec) == []
    return spec


def workspace_of(root: Path, **files: str) -> CodeMachine:
    named = {f".codemachine/config/{name.replace('_', '.')}.js": text for name, text in files.items()}
    return read_workspace(write(root, {**PLAIN, **named}))


def test_main_agents_become_steps_with_engine_model_and_policies(tmp_path: Path) -> None:
    plan, build = spec_of(tmp_path, PLAIN).steps
    assert (plan.called, build.called) == ("00-plan", "01-build")
    assert (plan.engine_id, plan.model, build.engine_id) == ("codex", "m", None)
    [loop] = plan.policies
    assert (loop["behavior"], loop["module_id"], loop["step_back"], loop["max_iterations"]) == (
        "loop",
        "iteration-checker",
        1,
        2,
    )
    assert plan.qa.policy is build.qa.policy is QaPolicy.SKIP
    assert plan.outputs.aux == {"codemachine": "outputs/plan.md"}


def test_the_template_is_kept(tmp_path: Path) -> None:
    template = '{"template": "spec-to-code", "version": "0.0.1", "engineDefaults": {"execute": "codex"}}'
    spec = spec_of(tmp_path, {**PLAIN, ".codemachine/template.json": template})
    assert spec.template["template"] == "spec-to-code"
    assert spec.template["engineDefaults"] == {"execute": "codex"}
    assert spec.version == "0.0.1"


def test_a_module_belongs_to_who_names_it_and_to_whom_it_names(tmp_path: Path) -> None:
    modules = """export default [
      { id: 'iteration-checker', behavior: { type: 'loop', stepBack: 1, maxIterations: 2 } },
      { id: 'handoff', behavior: { type: 'trigger', targetAgentId: 'build' } },
    ];"""
    plan, build = to_protocol_spec(workspace_of(tmp_path, modules=modules)).steps
    assert [policy["module_id"] for policy in plan.policies] == ["iteration-checker"]
    assert [policy["module_id"] for policy in build.policies] == ["handoff"]


def test_single_quotes_skips_and_plain_placeholders_are_read(tmp_path: Path) -> None:
    files = {
        "config/main.agents.js": "module.exports = [{ 'id': 'qa', 'promptPath': '{{PROMPTS_ROOT}}/p.md' }];",
        "config/modules.js": "module.exports = [{'id': 'm', 'behavior': "
        "{'type': 'loop', 'stepBack': 2, 'maxIterations': 3, 'skip': [0]}}];",
        "config/placeholders.js": "export default {'PROMPTS_ROOT': 'prompts'};",
        "prompts/p.md": "Look.",
    }
    spec = spec_of(tmp_path, files)
    loop = read_workspace(tmp_path).modules[0].behaviour
    assert loop is not None
    assert (loop.skip, loop.step_back, loop.max_iterations) == ((0,), 2, 3)
    assert spec.placeholders == {"PROMPTS_ROOT": "prompts"}
    assert spec.steps[0].metadata["prompts"] == ["prompts/p.md"]


@pytest.mark.parametrize(
    ("name", "text", "line", "told"),
    [
        ("main_agents", "export default [\n  { id: 'a' }];", 2, "agent 'a' has no promptPath"),
        ("main_agents", "export default [{\n promptPath: 'x' }];", 1, "agent 1 has no id"),
        ("main_agents", "export default [{ id: '../up', promptPath: 'x' }];", 1, "cannot be the id"),
        (
            "main_agents",
            "export default [{ id: 'a', promptPath: 'x' },\n{ id: 'a', promptPath: 'x' }];",
            2,
            "two agents",
        ),
        ("main_agents", "export default { id: 'a' };", 1, "agents must be an array"),
        ("main_agents", "export default ['a'];", 1, "must be an object, not the text 'a'"),
        (
            "main_agents",
            "export default [{ id: 'a',\npromptPath: 5 }];",
            2,
            "must be an object, not the number 5",
        ),
        ("main_agents", "export default [{ id: 'a', promptPath: '' }];", 1, "an empty text"),
        (
            "main_agents",
            "export default [{ id: 'a', promptPath: 'x', qa: 'hard' }];",
            1,
            "full, light or skip",
        ),
        (
            "modules",
            "export default [\n{ id: 'm',\n behavior: 'loop' }];",
            3,
            "must be an object, not the text 'loop'",
        ),
        ("modules", "export default [{ id: 'm', behavior: { type: 'dance' } }];", 1, "loop or trigger"),
        (
            "modules",
            "export default [{ id: 'm', behavior: {} }];",
            1,
            "is missing; it can be loop or trigger",
        ),
        (
            "modules",
            "export default [{ id: 'm', behavior: { type: 'loop', stepBack: -1 } }];",
            1,
            "whole number",
        ),
        (
            "modules",
            "export default [{ id: 'm', behavior: { type: 'loop', skip: [{}] } }];",
            1,
            "indexes and ids",
        ),
        ("modules", "export default [{ id: 'm' }, { id: 'm' }];", 1, "two modules"),
        ("placeholders", "export default ['x'];", 1, "placeholders must be an object"),
        ("placeholders", "export default { A: 1 };", 1, "must be a text"),
    ],
)
def test_what_is_of_the_wrong_kind_is_an_error_with_file_and_line(
    tmp_path: Path, name: str, text: str, line: int, told: str
) -> None:
    with pytest.raises(WorkspaceInvalid) as caught:
        workspace_of(tmp_path, **{name: text})
    assert caught.value.file == f".codemachine/config/{name.replace('_', '.')}.js"
    assert caught.value.line == line
    assert told in str(caught.value)


def test_an_agent_that_names_a_module_nobody_has_is_refused(tmp_path: Path) -> None:
    files = {**PLAIN, ".codemachine/config/modules.js": "export default [];"}
    with pytest.raises(WorkspaceInvalid, match="'iteration-checker', which does not exist"):
        spec_of(tmp_path, files)


def test_a_workspace_without_main_agents_is_refused(tmp_path: Path) -> None:
    files = {**PLAIN, ".codemachine/config/main.agents.js": "export default [];"}
    with pytest.raises(WorkspaceInvalid, match="no main agents"):
        spec_of(tmp_path, files)


def test_an_array_that_is_exported_by_name_is_taken(tmp_path: Path) -> None:
    source = "export const mainAgents = [{ id: 'a', promptPath: 'prompts/plan.md' }];"
    spec = spec_of(tmp_path, {**PLAIN, ".codemachine/config/main.agents.js": source})
    assert [step.called for step in spec.steps] == ["00-a"]


def test_an_agent_says_how_it_is_judged_and_where_its_answer_is_mirrored(tmp_path: Path) -> None:
    source = """export default [
      { id: 'a', promptPath: 'prompts/plan.md', qa: 'light', mirrorPath: 'mirror/a.md' },
      { id: 'b', promptPath: 'prompts/build.md', qa: { policy: 'full', engineId: 'claude', model: 'x' } },
    ];"""
    first, second = spec_of(tmp_path, {**PLAIN, ".codemachine/config/main.agents.js": source}).steps
    assert first.qa.policy is QaPolicy.LIGHT
    assert first.outputs.aux == {"codemachine": "outputs/a.md", "mirror": "mirror/a.md"}
    assert (second.qa.policy, second.qa.engine_id, second.qa.model) == (QaPolicy.FULL, "claude", "x")


def test_an_answer_is_not_mirrored_over_a_file_of_the_workspace(tmp_path: Path) -> None:
    source = "export default [{ id: 'a', promptPath: 'prompts/plan.md', mirrorPath: 'prompts/build.md' }];"
    with pytest.raises(WorkspaceInvalid, match="is a file that exists"):
        spec_of(tmp_path, {**PLAIN, ".codemachine/config/main.agents.js": source})


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"engineDefaults": 1}', "[" * 100_000, '{"selectedConditions": 1}']
)
def test_a_template_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WorkspaceInvalid) as caught:
        read_workspace(write(tmp_path, {**PLAIN, ".codemachine/template.json": text}))
    assert caught.value.file == ".codemachine/template.json"


TWO = {
    **PLAIN,
    ".codemachine/templates/workflows/short.workflow.js": "export default { steps: [resolveStep('build')] };",
    ".codemachine/workflows/long.js": "export default { steps: [resolveStep('build'), resolveStep('plan')] };",
}


def test_the_only_workflow_decides_order_and_subset(tmp_path: Path) -> None:
    files = {path: text for path, text in TWO.items() if "short" not in path}
    assert [step.called for step in spec_of(tmp_path, files).steps] == ["00-build", "01-plan"]


def test_of_several_workflows_one_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid) as caught:
        spec_of(tmp_path, TWO)
    assert "long, short" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["short", "short.workflow", "short.workflow.js"])
def test_a_workflow_is_named_by_whoever_imports_it(tmp_path: Path, name: str) -> None:
    assert [step.id for step in spec_of(tmp_path, TWO, workflow=name).steps] == ["build"]


@pytest.mark.parametrize("key", ["activeTemplate", "workflow", "template"])
def test_a_workflow_is_named_by_the_template(tmp_path: Path, key: str) -> None:
    files = {**TWO, ".codemachine/template.json": f'{{"{key}": "short.workflow.js"}}'}
    assert [step.id for step in spec_of(tmp_path, files).steps] == ["build"]


def test_a_named_workflow_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid, match="no workflow is called 'other'") as caught:
        spec_of(tmp_path, TWO, workflow="other")
    assert "long, short" in str(caught.value.hint)
    with pytest.raises(WorkspaceInvalid, match="no workflow is called 'gone"):
        spec_of(tmp_path, {**TWO, ".codemachine/template.json": '{"activeTemplate": "gone.workflow.js"}'})


def test_sub_agents_that_a_workflow_uses_are_in_the_spec(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, PACKAGE)
    assert [agent["id"] for agent in spec.metadata["sub_agents"]] == ["mason"]
    assert spec.metadata["workflow"] == "templates/workflows/house.workflow.js"
