"""One line of what a crash had to say."""

from __future__ import annotations

import pytest

from ratchet.research.measurement.checkout import RecipePaths
from ratchet.research.measurement.result import crash_excerpt

RECIPE = RecipePaths(("recipe.py", "lib"))
ROOT = "/a/checkout"
TRACEBACK = """\
Traceback (most recent call last):
  File "/usr/lib/python3/runpy.py", line 88, in _run_code
  File "/a/checkout/recipe.py", line 3, in <module>
    main()
  File "/a/checkout/lib/model.py", line 17, in fit
    numpy.linalg.solve(a, b)
    ^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/numpy/linalg.py", line 409, in solve
numpy.linalg.LinAlgError: Singular matrix
"""


def excerpt(text: str) -> str:
    return crash_excerpt(text.encode(), lambda name: RECIPE.file(name, [ROOT]), [ROOT])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACEBACK, "numpy.linalg.LinAlgError: Singular matrix (lib/model.py:17 in fit)"),
        ("", ""),
        ("\n \n", ""),
        ("just words\nand more\n", "and more"),
        ("ERROR main: RuntimeError: CUDA error: out of memory\n", "RuntimeError: CUDA error: out of memory"),
        ("step 3: Failed to converge", "Failed: to converge"),
        (
            'Traceback (most recent call last):\n  File "recipe.py", line 2, in f\nKeyboardInterrupt\n',
            "KeyboardInterrupt (recipe.py:2 in f)",
        ),
        (
            'Traceback (most recent call last):\n  File "recipe.py", line 4\n    x = (\n        ^\n'
            "SyntaxError: '(' was never closed\n",
            "SyntaxError: '(' was never closed (recipe.py:4)",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
            '  File "/a/checkout/recipe.py", line 9 in inner\n  File "/a/checkout/recipe.py", line 2 in outer\n',
            "Fatal Python error: Segmentation fault (recipe.py:9 in inner)",
        ),
        (
            'Traceback (most recent call last):\n  File "/usr/lib/json.py", line 7, in loads\nValueError: bad\n',
            "ValueError: bad (json.py:7 in loads)",
        ),
        (
            TRACEBACK + "\nDuring handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "/usr/lib/x.py", line 1, in close\nOSError: gone\n',
            "OSError: gone (lib/model.py:17 in fit)",
        ),
        ("FileNotFoundError: /a/checkout/data.bin", "FileNotFoundError: data.bin"),
        ("ValueError: a\tb\x1b[31m\x00c", "ValueError: a b [31m c"),
    ],
)
def test_the_deepest_frame_in_the_recipe_is_named(text: str, expected: str) -> None:
    assert excerpt(text) == expected


def test_only_the_end_of_a_long_output_is_read() -> None:
    assert excerpt(TRACEBACK + "x" * 60_000 + "\nMemoryError: late\n") == "MemoryError: late"


def test_a_long_message_is_cut() -> None:
    assert len(excerpt("ValueError: " + "y" * 10_000)) == 200


def test_hostile_output_takes_no_time() -> None:
    assert excerpt('File "' * 9000 + "Error" * 1000)
    assert excerpt("Traceback (most recent call last):\n" * 1400) == "Traceback (most recent call last):"
