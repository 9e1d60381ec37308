"""Giving up rights for good, after which foreign code may run."""

from __future__ import annotations

import os
from collections.abc import Container

from . import landlock, names, rlimits, seccomp
from .linux import PR_SET_NO_NEW_PRIVS, Prepared, drop_capabilities, prctl
from .spec import CommandSpec, most_tasks
from .view import SCRATCH, FileView


def give_up_for_command(spec: CommandSpec) -> None:
    if spec.cpus:
        os.sched_setaffinity(0, spec.cpus)
    rlimits.limit(
        # The watch adds up the whole tree; the kernel only ends what the watch did not see.
        cpu_seconds=None if spec.cpu_seconds is None else spec.cpu_seconds + 1,
        file_bytes=spec.file_bytes,
        # Not the address space: runtimes such as Node's reserve far more of it than they use.
        data_bytes=spec.memory_bytes,
        tasks=most_tasks(spec.processes),
    )
    _give_up_privileges(spec.layers)
    internet = spec.view.network or names.NETWORK in spec.layers
    if names.LANDLOCK in spec.layers:
        private = (*SCRATCH, "/dev", "/proc") if names.MOUNT in spec.layers else ("/dev/null",)
        landlock.restrict(
            # A process under rules for files cannot mount, so there are none for one that makes sandboxes itself.
            files=not spec.nested,
            readable=_readable(spec.layers, spec.view),
            writable=(*spec.view.writable, *spec.view.devices, *private),
            network=internet,
        )
    if names.SECCOMP in spec.layers:
        bound = bool(spec.cpus)
        sharing, watching = names.IPC in spec.layers, names.USER in spec.layers
        seccomp.command_filter(
            nested=spec.nested, internet=internet, bound=bound, sharing=sharing, watching=watching
        ).install()


def node_restriction(layers: Container[str], view: FileView, *, scratch: bool) -> Prepared | None:
    """Landlock's part of what a node gives up, if it is among the layers. Holds a descriptor."""
    if names.LANDLOCK not in layers:
        return None
    writable = (SCRATCH[0], "/dev/null") if scratch else ("/dev/null",)
    rules = landlock.rules(files=True, readable=_readable(layers, view), writable=writable, network=False)
    return None if rules is None else landlock.restriction(rules)


def node_filter(layers: Container[str], own_pid: int, *, scratch: bool) -> seccomp.SeccompFilter | None:
    """The filter's part of it, if that is among the layers."""
    if names.SECCOMP not in layers:
        return None
    guards = names.MOUNT in layers or (names.LANDLOCK in layers and landlock.guards_truncation())
    return seccomp.node_filter(own_pid, writes=scratch, guards_truncation=guards)


def _give_up_privileges(layers: Container[str]) -> None:
    if names.CAPABILITIES in layers:
        drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _readable(layers: Container[str], view: FileView) -> list[str]:
    """Where a mount namespace shows only what may be read, that is everything."""
    return ["/"] if names.MOUNT in layers else view.visible()
