"""The problem that every peer is given: a program with one number in it, whose score takes no time."""

from __future__ import annotations

import re

PROGRAM = '''"""Answers with one number."""

# EVOLVE-BLOCK-START
VALUE = 0
# EVOLVE-BLOCK-END


def run():
    return VALUE
'''

# `score` is all that an evaluator needs. The byte tells that the candidate was really run.
_SCORING = """import os
from pathlib import Path

TALLY = {tally!r}


def score(program_path):
    names = {{}}
    exec(Path(program_path).read_text(), names)
    tally = os.open(TALLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(tally, b".")
    os.close(tally)
    return float(names["run"]() % 97)
"""

_CURRENT = re.compile(r"^# current program$", re.IGNORECASE | re.MULTILINE)
_VALUE = re.compile(r"^VALUE = \d+$", re.MULTILINE)


def scoring(tally: str) -> str:
    """The source of `score(program_path)`, which leaves one byte in the file `tally` for each candidate."""
    return _SCORING.format(tally=tally)


def edit(prompt: str, number: int) -> str:
    """What a model would answer: the current program's number becomes `number`.

    A prompt shows earlier programs too, so the one below the last heading counts. Both peers read the same block; the
    name and the description around it are for the one that asks for them.
    """
    headings = list(_CURRENT.finditer(prompt))
    found = _VALUE.search(prompt, headings[-1].end()) if headings else None
    if found is None:
        raise ValueError(f"no current program in the prompt: {prompt[-300:]!r}")
    return (
        f"<NAME>\nnumber_{number}\n</NAME>\n\n<DESCRIPTION>\nTry {number}.\n</DESCRIPTION>\n\n<DIFF>\n"
        f"<<<<<<< SEARCH\n{found[0]}\n=======\nVALUE = {number}\n>>>>>>> REPLACE\n</DIFF>\n"
    )
