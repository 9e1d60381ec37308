"""Every part of a description is used, and one that cannot be meant is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.engines import EventKind, Request, SessionEvent
from ratchet.engines.command.catalog import READY
from ratchet.engines.registry import engine_names
from ratchet.kernel import ConfigError, Misuse
from ratchet.modelserver import ModelServer
from tests.engines.command_subject import Bench, agent
from tests.engines.conftest import Place
from tests.engines.contract import (
    SCHEMA,
    fails,
    lines,
    propose,
)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Bench:
    return Bench(place, tmp_path / "bin")


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        ("", "import sys; print(sys.stdin.read())"),
        ("--say={prompt}", "import sys; print(sys.argv[1].removeprefix('--say=') + sys.stdin.read())"),
        ("{prompt_file}", "import sys; print(open(sys.argv[1]).read() + sys.stdin.read())"),
    ],
)
def test_the_prompt_arrives_as_it_is(bench: Bench, workspace: Path, arguments: str, program: str) -> None:
    prompt = "-x $(touch pwned) {home} `id` 'ü'\n\"last\""
    assert propose(bench.open(program, "", arguments), Request(prompt, workspace)).text == prompt


def test_a_prompt_too_long_for_an_argument_is_refused(bench: Bench, workspace: Path) -> None:
    engine = bench.open("pass", "", "{prompt}")
    with pytest.raises(Misuse, match="more than 131071 bytes") as caught:
        propose(engine, Request("x" * 200_000, workspace))
    assert "stdin" in (caught.value.hint or "")


def test_a_script_that_an_interpreter_is_given_is_seen_wherever_it_lies(
    place: Place, tmp_path: Path, workspace: Path
) -> None:
    script = tmp_path / "mine" / "agent.py"
    script.parent.mkdir()
    script.write_text("import os; print(os.listdir(os.path.dirname(__file__)))")
    (script.parent / "private").write_text("of the user")
    toml = f'[engines.command.mine]\nargv = ["python3", "{script}"]'
    assert propose(place.open("mine", toml), Request("x", workspace)).text == "['agent.py']"


def test_a_script_that_is_not_there_is_reported_before_a_session(place: Place, tmp_path: Path) -> None:
    script = tmp_path / "mine" / "agent.py"
    readiness = asyncio.run(
        place.open("mine", f'[engines.command.mine]\nargv = ["python3", "{script}"]').check()
    )
    assert (readiness.ready, str(script) in readiness.detail) == (False, True)


def test_a_word_with_nothing_to_fill_in_is_left_out(bench: Bench, workspace: Path) -> None:
    program = "import sys; print(sys.argv[1:])"
    engine = bench.open(program, "", "--model={model} --system={system} {workspace}")
    assert propose(engine, Request("x", workspace)).text == str([str(workspace)])
    full = propose(engine, Request("x", workspace, model="m", system="s"))
    assert full.text == str(["--model=m", "--system=s", str(workspace)])
    assert full.model == "m"


def test_the_model_of_the_description_is_used_unless_another_is_asked_for(
    bench: Bench, workspace: Path
) -> None:
    engine = bench.open("import sys; print(sys.argv[1])", 'model = "usual"', "{model}")
    assert propose(engine, Request("x", workspace)).text == "usual"
    assert propose(engine, Request("x", workspace, model="other")).text == "other"


def test_a_model_may_come_after_the_name(place: Place, tmp_path: Path, workspace: Path) -> None:
    path = agent(tmp_path / "bin", "import sys; print(sys.argv[1])")
    toml = f'[engines.command.mine]\nargv = ["{path}", "{{model}}"]\nmodel = "usual"'
    assert propose(place.open("mine:maker/large", toml), Request("x", workspace)).text == "maker/large"


def test_system_and_schema_are_put_into_the_prompt_if_they_have_no_place_of_their_own(
    bench: Bench, workspace: Path
) -> None:
    echo = "import sys; print(sys.stdin.read())"
    text = propose(bench.open(echo), Request("Do it.", workspace, system="Be brief.")).text
    assert text == "Be brief.\n\nDo it."
    failed = fails(bench.open(echo), Request("Do it.", workspace, output_schema=SCHEMA))
    assert '"score"' in lines(failed.session)[-1]["text"] + str(failed)


def test_system_and_schema_have_files_of_their_own_where_asked(bench: Bench, workspace: Path) -> None:
    program = (
        "import sys, json; print(json.dumps([sys.stdin.read(), *(open(a).read() for a in sys.argv[1:])]))"
    )
    engine = bench.open(program, "", "{system_file} {schema_file}")
    request = Request("Do it.", workspace, system="Be brief.", output_schema={"type": "array"})
    assert propose(engine, request).output == ["Do it.", "Be brief.", '{"type": "array"}']


def test_its_environment_holds_what_is_named_and_what_every_program_needs(
    bench: Bench, workspace: Path
) -> None:
    engine = bench.open(
        "import os, json; print(json.dumps(dict(os.environ)))",
        'environment = ["NAMED", "UNSET"]\nvariables = ["OWN=at {workspace}", "EMPTY="]',
        NAMED="yes",
        OTHER="no",
    )
    seen = json.loads(propose(engine, Request("x", workspace)).text)
    assert (seen["NAMED"], seen["OWN"], seen["EMPTY"]) == ("yes", f"at {workspace}", "")
    usual = {"PATH", "LANG", "HOME", "TMPDIR", "TERM", "NO_COLOR", "NAMED", "OWN", "EMPTY"}
    assert set(seen) - {"LC_CTYPE"} == usual


def test_only_an_agent_that_edits_files_can(bench: Bench, workspace: Path) -> None:
    program = "try: open('made', 'w')\nexcept OSError as e: print('cannot', open('README.md').read())"
    engine = bench.open(program, "edits_files = false")
    assert propose(engine, Request("x", workspace)).text == "cannot A project."
    assert not engine.capabilities.edits_files
    assert not (workspace / "made").exists()


@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_there_only_if_so_described(
    bench: Bench, workspace: Path, model_server: ModelServer, network: bool
) -> None:
    port = model_server.url.rpartition(":")[2]
    program = (
        f"import socket\ntry: socket.create_connection(('127.0.0.1', {port})); print('reached')\n"
        "except OSError: print('cut off')"
    )
    engine = bench.open(program, f"network = {str(network).lower()}")
    assert propose(engine, Request("x", workspace)).text == ("reached" if network else "cut off")


@pytest.mark.soak
def test_what_it_prints_is_heard_while_it_runs(bench: Bench, workspace: Path) -> None:
    heard: list[SessionEvent] = []
    engine = bench.open("import time; print('begun', flush=True); time.sleep(60)")
    fails(engine, Request("x", workspace, deadline_seconds=8, listen=heard.append))
    assert [(each.kind, each.text) for each in heard[1:]] == [(EventKind.NOTE, "begun")]


@pytest.mark.parametrize(
    ("program", "version", "ready", "detail"),
    [
        ("print('agent 1.2')", '["--version"]', True, "agent 1.2 at "),
        ("import sys; sys.exit('no licence')", '["--version"]', False, "no licence"),
        ("import sys; sys.exit('no licence')", "[]", True, "/bin/agent"),
    ],
)
def test_the_check_asks_for_the_version_if_it_is_told_how(
    bench: Bench, program: str, version: str, ready: bool, detail: str
) -> None:
    readiness = asyncio.run(bench.open(program, f"version = {version}").check())
    assert readiness.ready is ready
    assert detail in readiness.detail


def test_a_program_of_a_virtual_environment_in_a_temporary_directory_works(
    place: Place, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [site] = venv.glob("lib/python*/site-packages")
    (site / "only_here.py").write_text("print('found')\n")
    engine = place.open(
        "mine",
        f'[engines.command.mine]\nargv = ["{venv}/bin/python3", "-c", "import only_here"]\nedits_files = false',
    )
    assert propose(engine, Request("x")).text == "found"


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ('argv = ["a", "{prompts}"]', "placeholder {prompts}"),
        ('argv = ["a", "{prompt"]', "braces that do not match"),
        ('argv = ["a"]\nanswer = "json"', "json:PATH"),
        ('argv = ["a"]\nanswer = "file:"', "file:NAME"),
        ('argv = ["a"]\nanswer = "stdout:x"', "must be stdout"),
        ('argv = ["a"]\nanswer = "file:{hone}"', "placeholder {hone}"),
        ('argv = ["a"]\nexit_codes = ["x=crashed"]', "code=failure"),
        ('argv = ["a"]\nexit_codes = ["1=oops"]', "code=failure"),
        ('argv = ["a"]\npatterns = ["crashed=("]', "not a regular expression"),
        ('argv = ["a"]\npatterns = ["oops=x"]', "failure=regular expression"),
        ('argv = ["a"]\nusage_pattern = "("', "not a regular expression"),
        ('argv = ["a"]\nvariables = ["1X=2"]', "NAME=value"),
        ("argv = []", "argv"),
        ("", "argv"),
    ],
)
def test_a_description_that_cannot_be_meant_is_refused(place: Place, toml: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("{", r"\{")):
        place.open("mine", f"[engines.command.mine]\n{toml}")


@pytest.mark.parametrize("name", READY)
def test_a_ready_description_can_be_opened_and_replaced(place: Place, name: str) -> None:
    engine = place.open(name, environment={"PATH": "/nowhere"})
    assert engine.name == name
    readiness = asyncio.run(engine.check())
    assert not readiness.ready
    assert "install" in (readiness.fix or "")
    own = place.open(name, f'[engines.command.{name}]\nargv = ["true"]\nanswer = "none"')
    assert asyncio.run(own.check()).ready
    assert name in engine_names(place.surroundings().settings)
