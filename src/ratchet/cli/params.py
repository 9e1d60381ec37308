"""The numbers that commands take."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from ratchet.kernel import Misuse, exact_bytes

_LONGEST = 64 * 1024


def read_secret_text(name: str) -> str:
    """Raises `Misuse` when there is none."""
    if sys.stdin.isatty():
        text = str(click.prompt(name, hide_input=True, err=True, default="", show_default=False))
    else:
        text = sys.stdin.readline(_LONGEST)
    if not text.strip():
        raise Misuse(
            f"no value was given for {name}",
            hint='type it when asked, or pipe it: printf %s "$TOKEN" | ratchet …',
        )
    return text.strip()


agent_argument = click.argument("name", metavar="AGENT", help="The name of an agent.")
research_argument = click.argument(
    "wanted", metavar="RUN", help="The number or the name of a run; of several the newest."
)
source_argument = click.argument(
    "source",
    metavar="FILE|WORKFLOW",
    help="A file of YAML or JSON, a saved workflow, or module:name in Python.",
)
tool_argument = click.argument(
    "tool",
    metavar="TOOL",
    help="The name of a tool; WORKFLOW/TOOL for one that a workflow brings with it, or its file beside the workflow.",
)
simulated_option = click.option(
    "--simulated", is_flag=True, help="Allow recorded answers; the run is marked as a simulation."
)
detach_option = click.option(
    "--detach", is_flag=True, help="Leave the work to `ratchet worker` or `ratchet serve`."
)


protocol_argument = click.argument(
    "wanted", metavar="PROTOCOL", help="Its number, or its name such as 0007-add-login."
)
step_argument = click.argument(
    "wanted", metavar="STEP", help="Its number, or PROTOCOL/NN: the protocol and the place in it."
)
project_argument = click.argument("project", metavar="PROJECT", help="Its number or its name.")
project_or_here_argument = click.argument(
    "project", metavar="[PROJECT]", required=False, help="Its number or its name; else the repository here."
)
within_option = click.option(
    "--project", metavar="PROJECT", help="The project it belongs to, where its name alone is not enough."
)
no_wait_option = click.option("--no-wait", is_flag=True, help="Do not wait for CI.")
ci_files_option = click.option(
    "--ci-files", is_flag=True, help="Write CI scripts and a CI file where the repository lacks them."
)
from_file_option = click.option(
    "--from-file", "file", metavar="FILE", help="Read the text from this file; - is the standard input."
)


def given_text(text: str | None, file: str | None, *, most_bytes: int) -> str:
    """The text, from where it was given. Raises `Misuse` for none, for two, and for one that is too long or no text."""
    if (text is None) == (file is None):
        raise Misuse(
            "the text is missing" if text is None else "the text is given twice",
            hint='write it as "TEXT", or name a file with --from-file',
        )
    content = exact_bytes(text) if text is not None else _read(file or "", most_bytes)
    if len(content) > most_bytes:
        raise Misuse(
            f"the text is longer than {most_bytes} bytes",
            hint="shorten it, or raise agents.feedback_bytes",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"the text is not UTF-8: {error}", hint="give it as UTF-8") from error


def _read(file: str, most_bytes: int) -> bytes:
    """One byte more than allowed tells that it is too long; what comes after is not read."""
    if file == "-":
        return sys.stdin.buffer.read(most_bytes + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(most_bytes + 1)
    except OSError as error:
        raise Misuse(
            f"{file} cannot be read: {error.strerror or error}", hint="name a file with the text in it"
        ) from error


# The largest that both databases can hold.
_LARGEST = 2**63 - 1


class Number(click.ParamType[int]):
    """A whole number from `min` to `max`. Help does not tell the range: nobody comes near its end."""

    name = "n"

    def __init__(self, min: int, max: int) -> None:
        self.min = min
        self.max = max

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.removeprefix("-").isdecimal():
            self.fail(f"{text!r} is not a whole number.", param, ctx)
        number = int(text) if len(text) <= 20 else self.max + 1
        if not self.min <= number <= self.max:
            self.fail(f"{text} is not a number from {self.min} to {self.max}.", param, ctx)
        return number


class Amount(click.ParamType[float]):
    """A number above nothing, or from nothing on, up to `max`."""

    name = "n"

    def __init__(self, max: float = math.inf, *, zero: bool = False) -> None:
        self.max = max
        self.zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{str(value)!r} is not a number.", param, ctx)
        if not ((number > 0 or (self.zero and number == 0)) and number <= self.max and math.isfinite(number)):
            start = "from 0" if self.zero else "above 0"
            end = "" if self.max == math.inf else f" up to {self.max:g}"
            self.fail(f"{value} is not a number {start}{end}.", param, ctx)
        return number


ID = Number(1, _LARGEST)
COUNT = Number(1, 1_000_000)
PORT = Number(0, 65535)
PRIORITY = Number(0, 9)
