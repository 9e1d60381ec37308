"""Which layers of the sandbox this machine offers, each one really tried."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from ratchet.doctor.check import Check
from ratchet.doctor.command import ask

_TRIALS = Path(__file__).with_name("layer_trials.py")
_NAMESPACES = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns); in a container, allow `unshare` in its seccomp profile"
)
_MEND = {
    "user namespace": _NAMESPACES,
    "network namespace": _NAMESPACES,
    "mount namespace": _NAMESPACES,
    "pid namespace": _NAMESPACES,
    "overlayfs": "load the kernel module overlay; without user namespaces it also needs root",
    "landlock": "use Linux 5.13 or newer with landlock in the kernel parameter lsm=",
    "seccomp filter": "use a kernel with CONFIG_SECCOMP_FILTER",
}


def sandbox_layers(path: str | None = None, process: Path = Path("/proc/self")) -> list[Check]:
    """One check for each layer. A missing one is a warning: every record says which layers were on."""
    if sys.platform != "linux":
        return [Check("sandbox", "warn", f"{sys.platform} has none of the layers", "run Ratchet on Linux")]
    return [*_kernel_layers(), _bubblewrap(path), _cgroup_memory(process)]


def _kernel_layers() -> list[Check]:
    answer = ask(sys.executable, "-I", "-S", str(_TRIALS), seconds=10)
    if answer.code != 0:
        return [
            Check("sandbox", "fail", f"the layers could not be tried: {answer.output.strip() or 'no answer'}")
        ]
    found: dict[str, tuple[bool, str]] = json.loads(answer.output)
    return [
        Check(f"sandbox {name}", "ok", said) if works else Check(f"sandbox {name}", "warn", said, _MEND[name])
        for name, (works, said) in found.items()
    ]


def _bubblewrap(path: str | None) -> Check:
    name = "sandbox bubblewrap"
    program = shutil.which("bwrap", path=path)
    if program is None:
        mend = "install the package bubblewrap with the package manager of your system"
        return Check(name, "warn", "bwrap not found on the PATH", mend)
    try:
        version = ask(program, "--version").first_line
        trial = ask(program, "--ro-bind", "/", "/", "--unshare-all", "true")
    except OSError as error:
        return Check(name, "warn", f"{program} cannot be run: {error.strerror}", "reinstall bubblewrap")
    if trial.code != 0:
        return Check(name, "warn", f"{version} at {program} cannot start: {trial.first_line}", _NAMESPACES)
    return Check(name, "ok", f"{version} at {program}")


def _cgroup_memory(process: Path) -> Check:
    """Whether a group of our own with a memory limit can be made below the one we are in."""
    name = "sandbox cgroup memory"
    mend = "use cgroup v2 and delegate the memory controller to this user (systemd: Delegate=memory)"
    group = _own_group(process)
    if group is None:
        return Check(name, "warn", "this process is in no cgroup v2", mend)
    trial = group / f"ratchet-trial-{os.getpid()}"
    try:
        offered = (group / "cgroup.controllers").read_text().split()
        if "memory" not in offered:
            return Check(name, "warn", f"{group} offers only {' '.join(offered) or 'nothing'}", mend)
        trial.mkdir()
        try:
            limited = os.access(trial / "memory.max", os.W_OK)
        finally:
            trial.rmdir()
    except OSError as error:
        return Check(name, "warn", f"{group} cannot be used: {error.strerror}", mend)
    if not limited:
        return Check(name, "warn", f"{group} does not hand the memory controller to its children", mend)
    return Check(name, "ok", f"groups with a memory limit can be made in {group}")


def _own_group(process: Path) -> Path | None:
    mounts = [line.split() for line in (process / "mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    lines = (process / "cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    return root / own if root is not None and own is not None else None
