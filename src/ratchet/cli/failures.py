"""Telling what went wrong, once for all commands: a message, the next step, and the exit code."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from ratchet.cli.next_steps import next_step
from ratchet.kernel import RatchetError

if TYPE_CHECKING:
    from ratchet.cli.session import Session

FAILED, MISUSED = 1, 2


class Failure(NamedTuple):
    """An error as a person is told it. Without a message there is nothing to tell."""

    code: int
    kind: str
    message: str
    hint: str | None = None


def tell(error: BaseException, session: Session) -> int:
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
        print(f"error: {failure.message}", file=sys.stderr)
        if failure.hint:
            print(f"hint: {failure.hint}", file=sys.stderr)
    return failure.code


def _understood(error: BaseException) -> Failure:
    kind = type(error).__name__
    match error:
        case RatchetError():
            return Failure(error.exit_code, kind, str(error), next_step(error))
        case click.exceptions.NoArgsIsHelpError():
            return Failure(MISUSED, "Misuse", "a command is missing", _where_to_look(error))
        case click.UsageError():
            return Failure(MISUSED, "Misuse", _lowered(error.format_message()), _where_to_look(error))
        case click.ClickException():
            return Failure(error.exit_code, kind, error.format_message())
        case KeyboardInterrupt() | click.Abort():
            return Failure(128 + signal.SIGINT, "Interrupted", "interrupted")
        case BrokenPipeError():
            # The reader had enough, as `head` does; there is nobody to tell.
            return Failure(128 + signal.SIGPIPE, "BrokenPipe", "")
        case SystemExit():
            return Failure(error.code if isinstance(error.code, int) else FAILED, "Exit", "")
        case _:
            return Failure(
                FAILED,
                kind,
                f"unexpected {kind}: {_masked(_first_line(error))}",
                "run it again with -v to see where it happened",
            )


def _where_to_look(error: click.UsageError) -> str | None:
    return f"see `{error.ctx.command_path} --help`" if error.ctx is not None else None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or "no message"


def _lowered(message: str) -> str:
    """Click's sentences in the form of our own messages."""
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:]


def _print_traceback(error: BaseException) -> None:
    import traceback

    print(_masked("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def _masked(text: str) -> str:
    from ratchet.config.database_url import mask_text

    return mask_text(text)
