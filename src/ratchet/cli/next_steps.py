"""What to type next after an error that does not say so itself: what is below does not know the commands."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.kernel import ConfigError, IllegalTransition, NotFound, RatchetError

# The command that lists what there is of a kind.
_LISTS: Mapping[str, str] = {
    "agent": "`ratchet agent list` shows them, `ratchet agent create` makes one",
    "approval": "`ratchet approval list --status any` shows them",
    "change": "`ratchet agent state AGENT --history` shows them",
    "ended run of workflow": "`ratchet workflow list` shows the runs, `ratchet workflow run` makes one",
    "entry": "`ratchet memory list` shows them",
    "failed or blocked step in protocol": "`ratchet protocol show {key}` says how it stands, and what to do next",
    "installed task": "`ratchet research tasks` shows them, `ratchet research new NAME` makes one",
    "job": "`ratchet queue jobs` shows them",
    "research run": "`ratchet research list` shows them, `ratchet research run TASK` makes one",
    "run": "`ratchet runs list` shows them",
    "run of a workflow": "`ratchet workflow list` shows them",
    "schedule": "`ratchet schedule list` shows them, `ratchet schedule add` makes one",
    "step to run in protocol": "`ratchet protocol show {key}` says how it stands, and what to do next",
    "trial": "`ratchet research activity RUN` shows the last ones",
    "version": "`ratchet agent versions AGENT` shows them",
}
_SHOWN = {"run": "`ratchet runs show {key}`", "step": "`ratchet step show {key}`"}


def next_step(error: RatchetError) -> str | None:
    """The hint of the error, or what can be told of its kind."""
    match error:
        case RatchetError(hint=str(hint)):
            return hint
        case NotFound():
            return _LISTS[error.entity].format(key=error.key) if error.entity in _LISTS else None
        case IllegalTransition() if error.entity in _SHOWN:
            shown = _SHOWN[error.entity].format(key=error.key)
            ended = "" if error.allowed else "; what has ended stays as it is"
            return f"{shown} tells how it stands{ended}"
        case ConfigError():
            return "correct it where it was set: on the command line, in a variable, or in ratchet.toml"
        case _:
            return None
