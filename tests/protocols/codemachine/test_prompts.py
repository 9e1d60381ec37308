"""The prompt of a step holds everything that CodeMachine would have told its agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.protocols.codemachine import WorkspaceInvalid, prompt_files, read_workspace
from tests.protocols.codemachine.workspaces import PACKAGE, PLAIN, write


@pytest.fixture
def prompts(tmp_path: Path) -> dict[str, str]:
    return prompt_files(read_workspace(write(tmp_path, PACKAGE)))


def test_every_step_has_one_file_and_a_check_has_two(prompts: dict[str, str]) -> None:
    assert list(prompts) == [
        "prompts/00-survey.md",
        "prompts/01-draw.md",
        "prompts/02-lay.md",
        "prompts/03-tools.md",
        "prompts/04-look-again.md",
        "prompts/04-look-again.review.md",
    ]


def test_several_prompts_come_in_their_order_and_chained_ones_after_them(prompts: dict[str, str]) -> None:
    text = prompts["prompts/01-draw.md"]
    wanted = [
        "You are careful.",
        "Draw what",
        "Part 2 of 3",
        "Then the first.",
        "Part 3 of 3",
        "Then the second.",
    ]
    places = [text.index(each) for each in wanted]
    assert places == sorted(places)


def test_the_specification_comes_at_the_end_of_every_prompt(prompts: dict[str, str]) -> None:
    assert all(text.endswith("---\n# Specification\nA house with a door.\n") for text in prompts.values())


def test_a_fallback_is_told_to_who_tries_again(prompts: dict[str, str]) -> None:
    assert (
        "an earlier attempt at this step was not completed\n\nDo this first:\n\nClear up."
        in prompts["prompts/01-draw.md"]
    )
    assert "Clear up." not in prompts["prompts/02-lay.md"]


def test_sub_agents_are_told_to_who_speaks_of_them(prompts: dict[str, str]) -> None:
    text = prompts["prompts/02-lay.md"]
    assert "## mason (Mason)\n\nKnows stone\n\nStone upon stone." in text
    assert "## roofer" not in text, "the workflow does not use the roofer"
    assert "Stone upon stone." not in prompts["prompts/00-survey.md"]


def test_a_sub_agent_is_not_found_inside_of_another_word(tmp_path: Path) -> None:
    files = {**PACKAGE, "prompts/lay.md": "Ask the stonemason and mason-2."}
    assert (
        "Stone upon stone." not in prompt_files(read_workspace(write(tmp_path, files)))["prompts/02-lay.md"]
    )


def test_a_prompt_of_a_sub_agent_that_is_missing_is_an_error(tmp_path: Path) -> None:
    files = {path: text for path, text in PACKAGE.items() if path != "prompts/sub/mason.md"}
    with pytest.raises(WorkspaceInvalid, match=r"mason\.md' does not exist") as caught:
        prompt_files(read_workspace(write(tmp_path, files)))
    assert (caught.value.file, caught.value.line) == ("config/sub.agents.js", 2)


def test_placeholders_in_prompts_are_filled_in(prompts: dict[str, str]) -> None:
    assert "Survey. Be kind." in prompts["prompts/00-survey.md"]
    draw = prompts["prompts/01-draw.md"]
    assert "what is wished: A house with a door." in draw
    assert "`.codemachine/artifacts/*.md` (read it in the repository" in draw, (
        "what steps write is read when it is there"
    )
    assert "Leave {other} alone." in draw


def text_of(root: Path, prompt: str, placeholders: str, **more: str) -> str:
    files = {
        **PLAIN,
        ".codemachine/prompts/plan.md": prompt,
        ".codemachine/config/placeholders.js": f"export default {placeholders};",
        **{f".codemachine/{path.replace('__', '/')}.md": text for path, text in more.items()},
    }
    return prompt_files(read_workspace(write(root, files)))["prompts/00-plan.md"]


@pytest.mark.parametrize("form", ["{WORD}", "{{WORD}}", "{{ WORD }}", "${WORD}", "{!WORD}"])
def test_every_form_of_a_plain_placeholder_is_filled_in(tmp_path: Path, form: str) -> None:
    assert "Say hello now." in text_of(tmp_path, f"Say {form} now.", "{ WORD: 'hello' }")


@pytest.mark.parametrize("form", ["{{WHERE}}", "<WHERE>", "${WHERE}", "$WHERE", "{WHERE}"])
def test_every_form_of_a_placeholder_in_a_path_is_filled_in(tmp_path: Path, form: str) -> None:
    agents = f"export default [{{ id: 'plan', promptPath: '{form}/plan.md' }}];"
    write(tmp_path, {**PLAIN, ".codemachine/config/placeholders.js": "export default { WHERE: 'prompts' };"})
    write(tmp_path, {".codemachine/config/main.agents.js": agents})
    assert "Plan it." in prompt_files(read_workspace(tmp_path))["prompts/00-plan.md"]


def test_a_placeholder_in_a_path_that_nobody_defined_is_an_error(tmp_path: Path) -> None:
    agents = "export default [{ id: 'plan',\npromptPath: '{{NOWHERE}}/plan.md' }];"
    with pytest.raises(WorkspaceInvalid, match=r"\{\{NOWHERE\}\} is not defined") as caught:
        prompt_files(read_workspace(write(tmp_path, {**PLAIN, ".codemachine/config/main.agents.js": agents})))
    assert caught.value.line == 2


def test_what_is_filled_in_is_not_filled_in_again(tmp_path: Path) -> None:
    assert "Say {B}{B} now." in text_of(tmp_path, "Say {A} now.", "{ A: '{B}{B}', B: '{A}{A}' }")


def test_a_file_of_the_package_must_be_there_unless_the_prompt_says_it_may_be_missing(tmp_path: Path) -> None:
    placeholders = "{ packageDir: {\n gone: 'shared/gone.md' } }"
    assert "Say  now." in text_of(tmp_path / "a", "Say {!gone} now.", placeholders)
    with pytest.raises(WorkspaceInvalid, match=r"stands for shared/gone\.md, which does not exist") as caught:
        text_of(tmp_path / "b", "Say {gone} now.", placeholders)
    assert (caught.value.file, caught.value.line) == (".codemachine/config/placeholders.js", 2)


def test_a_file_of_the_project_that_is_there_is_filled_in(tmp_path: Path) -> None:
    text = text_of(
        tmp_path,
        "Say {note} now.",
        "{ userDir: { note: '.codemachine/notes/*.md' } }",
        notes__a="one",
        notes__b="two",
    )
    assert "Say one\n\ntwo now." in text


def test_what_the_template_knows_can_be_named(tmp_path: Path) -> None:
    template = '{"projectName": "Shed", "selectedTrack": "small", "selectedConditions": ["b", "a"]}'
    write(tmp_path, {**PLAIN, ".codemachine/template.json": template})
    write(
        tmp_path, {".codemachine/prompts/plan.md": "{project_name}, {selected_track}, {selected_conditions}"}
    )
    assert "Shed, small, a, b" in prompt_files(read_workspace(tmp_path))["prompts/00-plan.md"]


def test_a_chained_prompt_may_depend_on_what_was_chosen(tmp_path: Path) -> None:
    agents = """export default [{ id: 'plan', promptPath: 'prompts/plan.md',
      chainedPromptsPath: [{ path: 'prompts/build.md', conditions: ['also'] }] }];"""
    root = write(tmp_path, {**PLAIN, ".codemachine/config/main.agents.js": agents})
    assert "Build it." not in prompt_files(read_workspace(root))["prompts/00-plan.md"]
    assert "Build it." in prompt_files(read_workspace(root, conditions=["also"]))["prompts/00-plan.md"]


def test_a_prompt_that_does_not_exist_is_an_error_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    files = {path: text for path, text in PLAIN.items() if not path.endswith("build.md")}
    with pytest.raises(WorkspaceInvalid) as caught:
        prompt_files(read_workspace(write(tmp_path, files)))
    assert ".codemachine/prompts/build.md and prompts/build.md" in str(caught.value)
    assert (caught.value.file, caught.value.line) == (".codemachine/config/main.agents.js", 3)


def test_placeholders_that_come_to_too_much_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceInvalid, match="with its placeholders it comes to more than"):
        text_of(
            tmp_path,
            "{long}" * 20_000,
            "{ userDir: { long: '.codemachine/notes/a.md' } }",
            notes__a="x" * 100_000,
        )


def test_prompts_that_come_to_too_much_together_are_refused(tmp_path: Path) -> None:
    agents = "const p = 'prompts/plan.md';\nexport default [{ id: 'plan', promptPath: [p, p, p, p] }];"
    long = {".codemachine/config/main.agents.js": agents, ".codemachine/prompts/plan.md": "x" * 100_000}
    with pytest.raises(WorkspaceInvalid, match="the prompt of 'plan' comes to more than"):
        prompt_files(read_workspace(write(tmp_path, {**PLAIN, **long})))
