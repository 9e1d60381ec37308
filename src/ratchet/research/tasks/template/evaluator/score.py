"""Asks for the sine at many points and scores the worst error. The recipe never sees this file."""

import math
import random

POINTS = 200


def prepare(given):
    """The question: other points for each seed, and others again for the held-out split."""
    draw = random.Random(f"{given['seed']} {given['held_out']}")
    return {"points": [draw.uniform(0.0, math.pi) for _ in range(POINTS)]}


def score(given):
    """The answer of one trial, scored; or why it does not count."""
    points = given["question"]["points"]
    answer = given["trial"]["answer"]
    if not isinstance(answer, list) or len(answer) != len(points):
        return {"invalid": "the answer is not one number for each point"}
    if not all(type(each) in (int, float) and math.isfinite(each) for each in answer):
        return {"invalid": "the answer holds something that is not a finite number"}
    errors = [abs(each - math.sin(x)) for x, each in zip(points, answer, strict=True)]
    return {"error": max(errors), "measurements": {"mean_error": sum(errors) / len(errors)}}
