"""Whatever a file holds, reading it ends: with a value, or with an error of our own."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.protocols.codemachine import WorkspaceInvalid, prompt_files, read_workspace, to_protocol_spec
from ratchet.protocols.codemachine.script import read_script
from ratchet.protocols.codemachine.syntax import plain
from tests.protocols.codemachine.workspaces import write

FRAGMENTS = (
    "export default", "module.exports =", "exports.x =", "const", "let", "import", "from", "require('path')",
    "path.join", "__dirname", "resolveStep('a', {", "resolveModule(", "separator('x')", "{", "}", "[", "]", "(",
    ")", ",", ";", ":", "...", "=", "+", "-", ".", "`", "${", "'", "\"", "\\u", "\\", "a", "id", "promptPath",
    "behavior", "type", "'loop'", "null", "1", "0x", "1e9", "//", "/*", "*/", "\n", "=>", "function", "class", "if",
    "for", "<a>", "/re/", "await", "?", "undefined", "async", "yield", "import.meta.url", "Object.freeze(",
)  # fmt: skip
PROMPTS = {"prompts/a.md": "{a} {{b}} ${c} {!d}", "prompts/b.md": "b"}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**20), max_value=10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
scripts = (
    st.binary(max_size=300)
    | st.text(max_size=200).map(str.encode)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(lambda words: " ".join(words).encode())
    | values.map(lambda value: f"module.exports = {json.dumps(value)}".encode())
)


@pytest.mark.soak
@given(
    values,
    st.sampled_from(["export default ", "module.exports = ", "const x = 1;\nexport default "]),
    st.booleans(),
)
@settings(deadline=None)
def test_a_literal_is_read_as_the_json_it_was_made_from(value: object, before: str, ascii: bool) -> None:
    source = before + json.dumps(value, ensure_ascii=ascii) + ";\n"
    read = plain(read_script(source.encode(), "x.js", "/workspace/x.js").exported)
    assert read == value
    assert json.dumps(read) == json.dumps(value)


@pytest.mark.soak
@given(scripts, scripts, scripts, scripts, scripts)
@settings(deadline=None, max_examples=60)
def test_whatever_the_files_hold_reading_ends_with_a_spec_or_our_own_error(
    agents: bytes, modules: bytes, placeholders: bytes, workflow: bytes, template: bytes
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = write(Path(place), PROMPTS)
        written = {
            "config/main.agents.js": agents,
            "config/modules.js": modules,
            "config/placeholders.js": placeholders,
            "workflow/w.js": workflow,
            "template.json": template,
        }
        for path, content in written.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(content)
        with contextlib.suppress(WorkspaceInvalid):
            workspace = read_workspace(root)
            to_protocol_spec(workspace)
            prompt_files(workspace)


agents = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "c d", "../e", "f"])},
        optional={
            "promptPath": st.sampled_from(
                ["prompts/a.md", ["prompts/a.md", "prompts/b.md"], "../x", "", 1, "prompts"]
            ),
            "moduleId": st.sampled_from(["m", ["m", "n"], "none", 3]),
            "chainedPromptsPath": st.sampled_from(
                ["prompts", [{"path": "prompts/b.md", "conditions": ["q"]}], [None]]
            ),
            "qa": st.sampled_from(["light", "full", "odd", {"policy": "skip"}, {}, 1]),
            "tracks": st.sampled_from([["t"], "t", []]),
            "type": st.sampled_from(["folder", "agent"]),
            "mirrorPath": st.sampled_from(["prompts/a.md", "out/x.md", 1]),
        },
    ),
    max_size=4,
)
modules = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["m", "n"])},
        optional={
            "behavior": st.sampled_from(["loop", None, {}, {"type": "loop", "stepBack": 0}])
            | st.fixed_dictionaries(
                {"type": st.sampled_from(["loop", "trigger", "other"])},
                optional={
                    "stepBack": st.integers(-2, 5),
                    "maxIterations": st.integers(0, 5),
                    "skip": st.lists(st.integers(0, 3) | st.sampled_from(["a", "z"]), max_size=3),
                    "targetAgentId": st.sampled_from(["a", "b", "z"]),
                    "condition": values,
                },
            ),
            "promptPath": st.just("prompts/b.md"),
        },
    ),
    max_size=3,
)
entries = st.lists(
    st.tuples(
        st.sampled_from(["resolveStep", "resolveModule", "resolveFolder", "separator"]),
        st.sampled_from(["a", "b", "m", "n", ""]),
        st.fixed_dictionaries(
            {},
            optional={
                "loopSteps": st.integers(-1, 6),
                "loopSkip": st.just(["a"]),
                "executeOnce": st.booleans(),
                "tracks": st.just(["t"]),
                "notCompletedFallback": st.sampled_from(["a", "z"]),
            },
        ),
    ),
    max_size=6,
)


@given(agents, modules, st.none() | entries)
@settings(deadline=None, max_examples=60)
def test_any_mixture_of_known_fields_ends_with_a_spec_or_our_own_error(
    agents: object, modules: object, entries: list[tuple[str, str, object]] | None
) -> None:
    files = {
        **PROMPTS,
        "config/main.agents.js": f"module.exports = {json.dumps(agents)}",
        "config/modules.js": f"module.exports = {json.dumps(modules)}",
    }
    if entries is not None:
        steps = ", ".join(
            f"{function}({json.dumps(id)}, {json.dumps(more)})" for function, id, more in entries
        )
        files["workflow/w.js"] = f"export default {{ steps: [{steps}] }}"
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(WorkspaceInvalid):
        workspace = read_workspace(write(Path(place), files))
        spec = to_protocol_spec(workspace)
        assert set(prompt_files(workspace)) >= {step.prompt_ref for step in spec.steps}
