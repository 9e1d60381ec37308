"""Telling what went wrong, once for all commands: a message, the next step, and the exit code."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from ratchet.kernel import ConfigError, IllegalTransition, NotFound, RatchetError, first_line

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession


SETUP = "`ratchet setup`"
"""How the hint of an error names it: such an error is one that it fixes."""


def wants_setup(error: BaseException, session: CliSession) -> bool:
    """Whether setup may help and the person at the terminal agrees to it."""
    helps = isinstance(error, RatchetError) and SETUP in (error.hint or "")
    if not helps or session.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return click.confirm(f"Run {SETUP} now, and then this command again?", default=True, err=True)
    except click.Abort:
        return False


def setup_line(session: CliSession) -> list[str]:
    """The arguments that set up the home that the command was for."""
    names = {"home": "--home", "database_url": "--database-url"}
    given = {name: session.flags.get(name) for name in names}
    return [
        "setup",
        *(word for name, value in given.items() if value is not None for word in (names[name], str(value))),
    ]


# The command that lists what there is of a kind.
_LISTS: Mapping[str, str] = {
    "agent": "`ratchet agent list` shows them, `ratchet agent create` makes one",
    "approval": "`ratchet approval list --status any` shows them",
    "attempt": "`ratchet step show STEP` shows those of a step",
    "call": "`ratchet agent calls AGENT` shows them",
    "certificate of version": "it has one when it was judged; `ratchet agent versions AGENT` shows them",
    "change": "`ratchet agent state AGENT --history` shows them",
    "ended run of workflow": "`ratchet workflow list` shows the runs, `ratchet workflow run` makes one",
    "entry": "`ratchet memory list` shows them",
    "eval": "`ratchet agent eval list AGENT` shows them",
    "failed or blocked step in protocol": "`ratchet protocol show {key}` shows its status, and what to do next",
    "incident": "`ratchet agent incidents AGENT` shows them",
    "installed task": "`ratchet research tasks` shows them, `ratchet research new NAME` makes one",
    "job": "`ratchet queue jobs` shows them",
    "key": "`ratchet agent key list AGENT` shows them",
    "project": "`ratchet project list` shows them, `ratchet project add` makes one",
    "protocol": "`ratchet protocol list` shows them, `ratchet protocol new` makes one",
    "research run": "`ratchet research list` shows them, `ratchet research run TASK` makes one",
    "run": "`ratchet runs list` shows them",
    "run of a workflow": "`ratchet workflow list` shows them",
    "schedule": "`ratchet schedule list` shows them, `ratchet schedule add` makes one",
    "secret": "`ratchet agent secret list AGENT` shows them",
    "session": "`ratchet usage` shows what was used",
    "step": "`ratchet protocol show PROTOCOL` shows those of a protocol",
    "step to run in protocol": "`ratchet protocol show {key}` shows its status, and what to do next",
    "tool": "`ratchet tool list` shows those there are",
    "trigger": "`ratchet trigger list` shows them, `ratchet trigger add` makes one",
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
            return f"{shown} shows its status{ended}"
        case ConfigError():
            return "correct it where it was set: on the command line, in a variable, or in ratchet.toml"
        case _:
            return None


FAILED, MISUSED = 1, 2


class CommandFailure(NamedTuple):
    """An error as a person is told it. Without a message there is nothing to tell."""

    code: int
    kind: str
    message: str
    hint: str | None = None


def tell(error: BaseException, session: CliSession) -> int:
    """Write `error` to stderr and return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not session.json:
        print(error.ctx.get_help(), file=sys.stderr)
        return MISUSED
    failure = _understood(error)
    if not failure.message:
        return failure.code
    if session.verbose and not isinstance(error, click.ClickException | KeyboardInterrupt):
        _print_traceback(error)
    if session.json:
        told = {
            "error": failure.message,
            "kind": failure.kind,
            "hint": failure.hint,
            "exit_code": failure.code,
        }
        print(json.dumps(told), file=sys.stderr)
    else:
        # Loaded here: only what goes wrong needs it.
        from ratchet.cli.words import hanging

        print(f"error: {hanging(failure.message, 7, sys.stderr)}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {hanging(failure.hint, 6, sys.stderr)}", file=sys.stderr)
    return failure.code


def _understood(error: BaseException) -> CommandFailure:
    kind = type(error).__name__
    match error:
        case RatchetError():
            return CommandFailure(error.exit_code, kind, str(error), next_step(error))
        case click.exceptions.NoArgsIsHelpError():
            return CommandFailure(MISUSED, "Misuse", "a command is missing", _where_to_look(error))
        case click.UsageError():
            return CommandFailure(MISUSED, "Misuse", _lowered(error.format_message()), _where_to_look(error))
        case click.ClickException():
            return CommandFailure(error.exit_code, kind, error.format_message())
        case KeyboardInterrupt() | click.Abort():
            return CommandFailure(128 + signal.SIGINT, "Interrupted", "interrupted")
        case BrokenPipeError():
            # The reader had enough, as `head` does; there is nobody to tell.
            return CommandFailure(128 + signal.SIGPIPE, "BrokenPipe", "")
        case SystemExit():
            return CommandFailure(error.code if isinstance(error.code, int) else FAILED, "Exit", "")
        case _:
            return CommandFailure(
                FAILED,
                kind,
                f"unexpected {kind}: {_masked(first_line(str(error)) or 'no message')}",
                "run it again with -v to see where it happened",
            )


def _where_to_look(error: click.UsageError) -> str | None:
    return f"see `{error.ctx.command_path} --help`" if error.ctx is not None else None


def _lowered(message: str) -> str:
    """Click's sentences in the form of our own messages."""
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:]


def _print_traceback(error: BaseException) -> None:
    import traceback

    print(_masked("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def _masked(text: str) -> str:
    from ratchet.config.redaction import mask_text

    return mask_text(text)
