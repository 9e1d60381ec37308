"""Small tasks of both kinds, honest ones and such as trust a recipe too much."""

from __future__ import annotations

from pathlib import Path

NODE_RECIPE = '''"""Guesses where the top of a hill is."""

from __future__ import annotations

X = 0.9  # search: 0.0..1.0
Y = 0.9  # search: 0.0..1.0


def climb(given):
    return {"x": X, "y": Y}
'''
NODE_EVALUATOR = """
def score(given):
    answer = given["trial"]["answer"]
    if not isinstance(answer, dict) or any(type(answer.get(name)) is not float for name in "xy"):
        return {"invalid": "the answer is not two numbers"}
    x, y = answer["x"], answer["y"]
    if not (0 <= x <= 1 and 0 <= y <= 1):
        return {"invalid": "outside of the map"}
    return {"height": 1 - (x - 0.3) ** 2 - (y - 0.6) ** 2, "measurements": {"x": x, "y": y}}
"""
NODE_TASK = """
[task]
name = "hill"
recipe = ["recipe.py"]

[score]
field = "height"
direction = "max"

[trial]
function = "climb"
file = "recipe.py"
seconds = 5.0
memory_mb = 128
output_kb = 64

[evaluator]
function = "score"
file = "evaluate.py"
seconds = 5.0

[keep]
deterministic = true

[[tool]]
name = "count_lines"
description = "How many lines the recipe has."
command = ["wc", "-l", "recipe.py"]
"""
COMMAND_RECIPE = '''"""Adds up what it is given."""

import json
import sys
from pathlib import Path

STEP = 2  # search: 1..4


def main():
    numbers = [int(line) for line in Path(sys.argv[1], "numbers.txt").read_text().split()]
    sums = [sum(numbers[: number + 1 : STEP]) for number in range(len(numbers))]
    Path(sys.argv[2], "sums.json").write_text(json.dumps(sums))
    print("made", len(sums))


if __name__ == "__main__":
    main()
'''
COMMAND_EVALUATOR = """
import json
import pathlib
import sys

given = json.load(sys.stdin)
numbers = [int(line) for line in pathlib.Path("/inputs/numbers.txt").read_text().split()]
try:
    sums = json.loads(pathlib.Path(given["trial"]["out"], "sums.json").read_text())
except (OSError, ValueError, RecursionError):
    sums = None
if not isinstance(sums, list) or len(sums) != len(numbers) or not all(type(each) is int for each in sums):
    print(json.dumps({"invalid": "sums.json does not hold one whole number for each"}))
elif not all(abs(each) < 10**9 for each in sums):
    print(json.dumps({"invalid": "a sum is out of range"}))
else:
    right = [sum(numbers[: number + 1]) for number in range(len(numbers))]
    print(json.dumps({"error": sum(abs(a - b) for a, b in zip(sums, right))}))
"""
COMMAND_TASK = """
[task]
name = "sums"
recipe = ["recipe"]
inputs = "inputs"
held_out_inputs = "held_out"
stage_files = { "run.sh" = "run.sh" }

[score]
field = "error"
direction = "min"

[trial]
command = ["sh", "run.sh", "{python}", "{inputs}", "{out}"]
seconds = 10.0
memory_mb = 128
processes = 16
output_kb = 64
file_mb = 4

[evaluator]
command = ["{python}", "-I", "-S", "evaluate.py"]
seconds = 10.0

[keep]
deterministic = true
held_out = true
held_out_tolerance = 1000.0

[size]
limit_bytes = 65536
"""


def write_node(
    folder: Path, *, task: str = NODE_TASK, recipe: str = NODE_RECIPE, evaluator: str = NODE_EVALUATOR
) -> Path:
    return write(folder, {"task.toml": task, "recipe.py": recipe, "evaluator/evaluate.py": evaluator})


def write_command(
    folder: Path,
    *,
    task: str = COMMAND_TASK,
    recipe: str = COMMAND_RECIPE,
    evaluator: str = COMMAND_EVALUATOR,
    more: dict[str, str] | None = None,
) -> Path:
    return write(
        folder,
        {
            "task.toml": task,
            "recipe/main.py": recipe,
            "run.sh": 'exec "$1" -I -S recipe/main.py "$2" "$3"\n',
            "evaluator/evaluate.py": evaluator,
            "inputs/numbers.txt": "\n".join(map(str, range(3, 60, 7))) + "\n",
            "held_out/numbers.txt": "\n".join(map(str, range(5, 90, 9))) + "\n",
            **(more or {}),
        },
    )


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
