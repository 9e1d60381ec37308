"""Which layers of the sandbox this machine grants."""

from __future__ import annotations

from ratchet.doctor.check import Check
from ratchet.sandbox import COMMAND_FLOOR, NODE_FLOOR, Layer, Layers, granted

_NAMESPACES = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns); in a container, allow `unshare` in its seccomp profile"
)
_MEND = {
    "landlock": "use Linux 5.13 or newer with landlock in the kernel parameter lsm=",
    "seccomp filter": "use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    "overlayfs": "load the kernel module overlay; without user namespaces it also needs root",
}


def sandbox_layers() -> list[Check]:
    """One check for each layer. A missing one is a warning: every record says which layers were on."""
    offered = granted()
    return [
        Check(f"sandbox {trial.layer}", "ok", trial.detail)
        if trial.granted
        else Check(f"sandbox {trial.layer}", "warn", trial.detail, _MEND.get(trial.layer, _NAMESPACES))
        for trial in offered.trials
    ] + [_runs("nodes", NODE_FLOOR, offered), _runs("commands", COMMAND_FLOOR, offered)]


def _runs(what: str, floor: frozenset[Layer], offered: Layers) -> Check:
    """Whether what must be on for nodes or commands is on."""
    missing = [layer for layer in Layer if layer in floor and layer not in offered]
    if missing:
        return Check(
            f"sandbox {what}", "warn", f"refused for want of {', '.join(missing)}", "mend what is missing"
        )
    return Check(f"sandbox {what}", "ok", "run with every layer that they must have")
