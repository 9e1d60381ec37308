"""Playing a page: doing what it tells its reader to do, in its order, in one shell.

- A block in `console` is typed as it stands. Each of its commands must end with 0.
- A plain block (no language) behind it shows what was printed. Its lines must have been printed, one below the other;
  `...` on a line of its own stands for any lines, and within a line for anything. Gaps between words may be of any
  width, and twelve hexadecimal digits are any commit.
- A block in another language, below a paragraph that names a file with a fitting ending, is what that file holds.
- Every other block is for reading only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.markdown import Block, blocks

_ENDINGS = {"yaml": ".yaml", "toml": ".toml", "python": ".py", "json": ".json", "html": ".html"}
_END = "END-OF-THE-FILE"
_ANY, _COMMIT = "...", re.compile(r"\b[0-9a-f]{12}\b")
_LONGEST_SECONDS = 900


@dataclass(frozen=True)
class Shown:
    """What a page says that its `number`th block of commands prints."""

    number: int
    text: str


def is_played(text: str) -> bool:
    return any(block.language == "console" for block in blocks(text))


def play(
    text: str,
    place: Path,
    stand_ins: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """Do everything that the page tells, and return what each block of commands printed.

    `stand_ins` are texts that are put in the place of those that the page has, such as the address of a database.
    Raises `AssertionError` with the command that failed, or with what was shown and not printed.
    """
    for page_has, used in (stand_ins or {}).items():
        assert page_has in text, f"the page does not have {page_has}"
        text = text.replace(page_has, used)
    script, showings = _translated(text)
    printed = _run(script, place, variables or {})
    for shown in showings:
        assert is_shown(shown.text, printed[shown.number]), (
            f"The page shows:\n{shown.text}\nIt printed:\n{printed[shown.number]}"
        )
    return printed


def is_shown(shown: str, printed: str) -> bool:
    """Whether the lines of `shown` are among those that were printed."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == _ANY else rf"{_line(line)}[ \t]*\n"
        for line in shown.splitlines()
    )
    # A machine that is slow is told what it waits for.
    printed = re.sub(r"^waiting for \d+ s: [^\n]*\n", "", f"{printed}\n", flags=re.M)
    return re.search(f"^{pattern}", printed, re.M) is not None


def _line(line: str) -> str:
    parts = []
    for part in line.rstrip().split(_ANY):
        commits = [re.sub(r"(\\ )+", r"[ \\t]+", re.escape(each)) for each in _COMMIT.split(part)]
        parts.append("[0-9a-f]{12}".join(commits))
    return r"[^\n]*?".join(parts)


def file_name(block: Block) -> str | None:
    """The file that the block is to be written to, if the paragraph above it names one."""
    ending = _ENDINGS.get(block.language)
    names = [] if ending is None else re.findall(rf"`([\w./-]+{re.escape(ending)})`", block.above)
    return names[-1] if names else None


def _translated(text: str) -> tuple[str, list[Shown]]:
    """The page as a shell script that prints each block of commands into a file of its own."""
    script = ["set -e", 'trap \'echo "$BASH_COMMAND" >"$PRINTED/failed"\' ERR']
    showings, number = [], -1
    for block in blocks(text):
        path = file_name(block)
        if block.language == "console":
            number += 1
            script.append(f'{{\n{block.text}}} >"$PRINTED/{number}" 2>&1')
        elif block.language == "" and number >= 0:
            showings.append(Shown(number, block.text))
        elif path is not None:
            folder, file = shlex.quote(str(Path(path).parent)), shlex.quote(path)
            script.append(f"mkdir -p {folder}\ncat >{file} <<'{_END}'\n{block.text}{_END}")
    return "\n".join(script) + "\n", showings


def _run(script: str, place: Path, variables: Mapping[str, str]) -> list[str]:
    work, home, printed = place / "work", place / "home", place / "printed"
    for directory in (work, home, printed):
        directory.mkdir()
    with subprocess.Popen(
        # It ends the page with everything that it started, also if nobody is left to wait for it.
        ["timeout", "--signal=KILL", str(_LONGEST_SECONDS), "bash", "-c", script],
        cwd=work,
        env=_environment(home, printed) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said = shell.communicate()[0]
        finally:
            _end(shell)
    outputs = [path.read_text() for path in sorted(printed.glob("[0-9]*"), key=lambda path: int(path.name))]
    if shell.returncode:
        failed = printed / "failed"
        command = failed.read_text() if failed.exists() else "The shell could not read the page.\n"
        raise AssertionError(
            f"{command}ended with {shell.returncode}\n{said}{outputs[-1] if outputs else ''}"
        )
    return outputs


def _environment(home: Path, printed: Path) -> dict[str, str]:
    """That of somebody who has nothing but Ratchet and what comes with the machine."""
    programs, site = Path(__file__).parent / "programs", home / "site-packages"
    return {
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(site),
        "PRINTED": str(printed),
    }


def _end(shell: subprocess.Popen[str]) -> None:
    """End the shell with everything that the page left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
