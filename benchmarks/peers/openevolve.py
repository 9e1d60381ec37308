"""OpenEvolve by its own command: as shipped, with an evaluator of one stage and two at a time, as Ratchet has here."""

from __future__ import annotations

import json

from benchmarks.peers.peer import Peer, Wanted
from benchmarks.peers.toy import PROGRAM, scoring

_EVALUATE = """

def evaluate(program_path):
    return {"combined_score": score(program_path)}
"""


def _prepare(wanted: Wanted) -> list[str]:
    configuration: dict[str, object] = {
        "llm": {"api_base": wanted.model_url, "api_key": "none", "models": [{"name": "scripted"}]},
        "evaluator": {"cascade_evaluation": False, "parallel_evaluations": 2},
    }
    if wanted.seed is not None:
        configuration["random_seed"] = wanted.seed
    files = {
        "program.py": wanted.program or PROGRAM,
        "evaluate.py": (wanted.scoring or scoring(str(wanted.tally))) + _EVALUATE,
        # JSON is YAML too.
        "configuration.yaml": json.dumps(configuration),
    }
    for name, text in files.items():
        (wanted.directory / name).write_text(text)
    return [
        *("openevolve-run", "program.py", "evaluate.py", "--config", "configuration.yaml"),
        *("--output", "output", "--iterations", str(wanted.iterations)),
    ]


OPENEVOLVE = Peer("openevolve", "OpenEvolve 0.4.0", "openevolve==0.4.0", _prepare)
