"""The image and the composition, as far as Docker is not needed: files, commands, ports and variables are real."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from ratchet.cli.catalogue import CATALOGUE
from ratchet.config import Loaded, load_settings
from ratchet.config.sources import HOME_VARIABLE
from ratchet.extras import PURPOSES
from tests.docs.markdown import blocks
from tests.install.conftest import ROOT

INSTRUCTIONS = re.compile(
    r"FROM|ARG|RUN|COPY|ENV|USER|WORKDIR|VOLUME|EXPOSE|ENTRYPOINT|CMD|LABEL|STOPSIGNAL|HEALTHCHECK"
)
FLEET: dict[str, Any] = yaml.safe_load((ROOT / "compose.fleet.yaml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with what follows it, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [
        (line.partition(" ")[0], line.partition(" ")[2])
        for line in lines
        if line and not line.startswith("#")
    ]


def those(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in those("ENV") for pair in rest.split())


def settings_of(environment: dict[str, str]) -> Loaded:
    """Raises for a variable that is no setting, and for a value that it cannot have."""
    return load_settings(env={name: text for name, text in environment.items() if name != HOME_VARIABLE})


def filled(text: str) -> str:
    """With a value for each `${NAME}` and `${NAME:?message}`."""
    return re.sub(r"\$\{\w+(?::\?[^}]*)?\}", "chosen", text)


def test_every_instruction_is_one_and_every_copied_file_is_there_and_not_ignored() -> None:
    assert [name for name, _ in instructions() if not INSTRUCTIONS.fullmatch(name)] == []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = [rest.split()[:-1] for rest in those("COPY") if not rest.startswith("--from=")]
    sources = {Path(source).as_posix() for each in copied for source in each}
    assert sources == kept
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_what_the_build_reads_is_copied_before_it() -> None:
    """`pip wheel` reads what pyproject.toml names beside the package."""
    copied = " ".join(those("COPY"))
    assert all(name in copied for name in ("pyproject.toml", "README.md", "LICENSE", "src"))


def test_the_image_starts_a_command_that_there_is_with_settings_that_there_are() -> None:
    assert json.loads(those("ENTRYPOINT")[0]) == ["ratchet"]
    [command] = json.loads(those("CMD")[0])
    assert command in CATALOGUE
    settings = settings_of(variables()).settings
    assert those("EXPOSE") == [str(settings.server.port)]
    [extras] = [rest.removeprefix("EXTRAS=") for rest in those("ARG")]
    assert set(extras.split(",")) <= PURPOSES.keys()
    assert variables()[HOME_VARIABLE] in those("VOLUME")


@pytest.mark.parametrize("name", ["server", "worker"])
def test_each_service_runs_a_command_that_there_is_on_the_database_beside_it(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["command"][0] in CATALOGUE
    given = {key: filled(text) for key, text in service["environment"].items() if text is not None}
    loaded = settings_of(
        variables() | {key: text for key, text in given.items() if key.startswith("RATCHET_")}
    )
    assert loaded.settings.database_url.reveal().endswith("@database/ratchet")
    assert loaded.settings.server.token is not None
    assert set(service["depends_on"]) <= COMPOSE["services"].keys()
    mounted = [volume.split(":") for volume in service["volumes"]]
    assert mounted == [["home", variables()[HOME_VARIABLE]]]
    grace = float(service["stop_grace_period"].removesuffix("s"))
    assert grace > loaded.settings.runtime.drain_seconds


def test_the_published_port_is_the_servers_and_its_health_is_a_request_that_there_is() -> None:
    server = COMPOSE["services"]["server"]
    port = str(settings_of(variables()).settings.server.port)
    assert [each.rpartition(":")[2] for each in server["ports"]] == [port]
    [asked] = re.findall(r'"http://127\.0\.0\.1:(\d+)(/[^"]*)"', server["healthcheck"]["test"][-1])
    assert asked == (port, "/health/ready")
    assert f"http://127.0.0.1:{port}/health/ready" in (ROOT / "docs" / "reference" / "api.md").read_text()
    used = {volume.split(":")[0] for each in COMPOSE["services"].values() for volume in each["volumes"]}
    assert used == COMPOSE["volumes"].keys()


def test_three_nodes_share_a_database_and_a_store_and_no_volume() -> None:
    services = {name: FLEET["services"][name] for name in ("server", "node-1", "node-2", "node-3")}
    mounted = []
    for service in services.values():
        assert service["command"][0] in CATALOGUE
        given = {key: filled(text) for key, text in service["environment"].items() if text is not None}
        loaded = settings_of(
            variables() | {key: text for key, text in given.items() if key.startswith("RATCHET_")}
        )
        assert loaded.settings.database_url.host in FLEET["services"]
        assert urlsplit(str(loaded.settings.artifacts.url)).query == "endpoint=http://store:9000"
        assert set(service["depends_on"]) <= FLEET["services"].keys()
        assert set(service["build"]["args"]["EXTRAS"].split(",")) <= PURPOSES.keys()
        [(volume, place)] = [each.split(":") for each in service["volumes"]]
        assert place == variables()[HOME_VARIABLE]
        mounted.append(volume)
    assert len(set(mounted)) == len(services)
    assert FLEET["volumes"].keys() == {*mounted, "database", "store"}


def test_the_manifest_for_kubernetes_has_settings_and_commands_that_there_are() -> None:
    page = (ROOT / "docs" / "howto" / "clusters.md").read_text()
    [block] = [each.text for each in blocks(page) if each.language == "yaml"]
    cluster, deployment = yaml.safe_load_all(block)
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    [group] = cluster["spec"]["workerGroupSpecs"]
    [worker] = deployment["spec"]["template"]["spec"]["containers"]
    measuring = group["template"]["spec"]["containers"]
    assert {each["image"] for each in [*head, *measuring]} == {worker["image"]}
    # What runs foreign code holds no keys.
    assert [each for each in [*head, *measuring] if "env" in each or "envFrom" in each] == []
    settings = settings_of({each["name"]: each["value"] for each in worker["env"]}).settings
    assert settings.placement.kind == "ray"
    assert settings.placement.address == f"{cluster['metadata']['name']}-head-svc:6379"
    assert settings.placement.address in worker["command"][-1]
    assert worker["command"][-1].endswith("exec ratchet worker")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > settings.runtime.drain_seconds
