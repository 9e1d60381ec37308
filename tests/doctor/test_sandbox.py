from __future__ import annotations

import os
from pathlib import Path

from ratchet.doctor import sandbox_layers
from ratchet.sandbox import Layer, granted


def test_each_layer_is_shown_and_a_refused_one_tells_how_to_mend_it() -> None:
    checks = sandbox_layers()
    told = [each.name.removeprefix("sandbox ") for each in checks]
    own = ["own user"] if os.geteuid() == 0 else []
    (cgroup,) = {"cgroup", "cgroup by systemd"} & set(told)
    assert told == [*map(str, Layer), "overlayfs", *own, cgroup, "nodes", "commands"]
    assert all((each.fix is None) == (each.status == "ok") for each in checks)
    assert "fail" not in {each.status for each in checks}


def test_the_doctor_shows_what_the_sandbox_itself_uses() -> None:
    shown = {each.name.removeprefix("sandbox "): each.status == "ok" for each in sandbox_layers()}
    assert {layer: shown[layer] for layer in Layer} == {layer: layer in granted() for layer in Layer}


def test_trying_leaves_this_process_as_it_was() -> None:
    def state() -> tuple[list[str], str]:
        spaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("user", "net", "mnt", "pid")]
        return spaces, Path("/proc/self/mounts").read_text()

    before = state()
    sandbox_layers()
    assert state() == before
