"""`ratchet dev model-server`"""

from __future__ import annotations

import itertools
import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cli.program import Program

Ending = Callable[[Popen[str]], Popen[str]]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "two.toml"
    file.write_text('[[turns]]\ntext = "one"\n[[turns]]\ntext = "two"\n')
    return file


def test_it_serves_a_script_logs_requests_and_ends_by_ctrl_c(
    plain_program: Program, script: Path, ending: Ending
) -> None:
    process = ending(plain_program.start("dev", "model-server", "--json", "--script", str(script)))
    served = _read(process)["scripts"][0]
    assert (served["name"], served["turns"]) == ("two", 2)
    assert _ask(served)["output"][0]["content"][0]["text"] == "one"
    logged = _read(process)
    assert (logged["script"], logged["request"]["said"], logged["ending"]) == ("two", "hello", "answered")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "Stopped.\n")


def test_a_person_is_told_how_to_point_agents_at_it(
    plain_program: Program, script: Path, ending: Ending
) -> None:
    process = ending(plain_program.start("dev", "model-server", "--script", str(script)))
    assert process.stdout is not None
    url = process.stdout.readline().split()[4].removesuffix("/v1")
    told = "".join(itertools.takewhile(lambda line: "OLLAMA" not in line, process.stdout))
    assert f'base_url = "{url}/v1"' in told
    assert f"export ANTHROPIC_BASE_URL={url}\n" in told
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 0


@pytest.mark.parametrize(("requests", "code"), [(2, 0), (1, None)])
def test_once_ends_when_the_script_is_used_up(
    plain_program: Program, script: Path, ending: Ending, requests: int, code: int | None
) -> None:
    process = ending(plain_program.start("dev", "model-server", "--json", "--once", "--script", str(script)))
    served = _read(process)["scripts"][0]
    for _ in range(requests):
        _ask(served)
    if code is None:
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == (1 if code is None else code)


def test_without_a_script_the_model_always_answers(plain_program: Program, ending: Ending) -> None:
    process = ending(plain_program.start("dev", "model-server", "--json"))
    served = _read(process)["scripts"][0]
    assert [_ask(served)["id"] for _ in range(2)] == ["scripted-hello-1", "scripted-hello-2"]


def test_a_mistake_in_a_script_is_misuse_that_names_it(plain_program: Program, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[[turns]]\ntexxt = "one"\n')
    done = plain_program("dev", "model-server", "--script", "bad.toml")
    assert done.code == 2
    assert "bad.toml:2: turn 1: texxt is unknown" in done.err


def test_two_scripts_of_one_name_are_misuse(plain_program: Program, script: Path) -> None:
    done = plain_program("dev", "model-server", "--script", str(script), "--script", str(script))
    assert done.code == 2
    assert "two scripts have the name two" in done.err


def _read(process: Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _ask(served: Any) -> Any:
    request = urllib.request.Request(
        f"{served['openai_url']}/responses", data=json.dumps({"model": "m", "input": "hello"}).encode()
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)
