"""A task of two numbers, small enough to be measured in milliseconds: the nearer to the top of the hill, the better."""

from __future__ import annotations

from pathlib import Path

RECIPE = """X = 0.9  # search: 0.0..1.0
Y = 0.9  # search: 0.0..1.0


def climb(given):
    return {"x": X, "y": Y}
"""
EVALUATOR = """def score(given):
    answer = given["trial"]["answer"]
    x, y = float(answer["x"]), float(answer["y"])
    if not (0 <= x <= 1 and 0 <= y <= 1):
        return {"invalid": "outside of the map"}
    return {"height": 1 - (x - 0.3) ** 2 - (y - 0.6) ** 2, "measurements": {"x": x, "y": y}}
"""
TASK = """[task]
name = "hill"
recipe = ["recipe.py"]

[score]
field = "height"
direction = "max"
columns = ["x", "y"]

[trial]
function = "climb"
file = "recipe.py"
seconds = 5.0

[evaluator]
directory = "evaluator"
function = "score"
file = "evaluate.py"
seconds = 5.0

[keep]
deterministic = true
"""


def write_hill(folder: Path, *, task: str = TASK, recipe: str = RECIPE, evaluator: str = EVALUATOR) -> Path:
    (folder / "evaluator").mkdir(parents=True)
    (folder / "task.toml").write_text(task)
    (folder / "recipe.py").write_text(recipe)
    (folder / "evaluator" / "evaluate.py").write_text(evaluator)
    return folder
