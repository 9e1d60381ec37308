"""ShinkaEvolve by its own command: as shipped, without the calls that are not proposals and with diffs only.

Embeddings, meta recommendations and the choice between models are off: the scripted model can do none of them.
"""

from __future__ import annotations

import json

from benchmarks.peers.peer import Peer, Wanted
from benchmarks.peers.toy import PROGRAM, scoring

# The standard library only: importing its own helper would cost seconds in every trial.
_EVALUATE = """

if __name__ == "__main__":
    import json
    import sys

    given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    results = Path(given["--results_dir"])
    results.mkdir(parents=True, exist_ok=True)
    metrics = {"combined_score": score(given["--program_path"]), "public": {}, "private": {}}
    (results / "metrics.json").write_text(json.dumps(metrics))
    (results / "correct.json").write_text(json.dumps({"correct": True, "error": None}))
"""


def _prepare(wanted: Wanted) -> list[str]:
    task = wanted.directory / "task"
    task.mkdir()
    (task / "initial.py").write_text(wanted.program or PROGRAM)
    (task / "evaluate.py").write_text((wanted.scoring or scoring(str(wanted.tally))) + _EVALUATE)
    settings = {
        "evo.llm_models": json.dumps([f"local/scripted@{wanted.model_url}"]),
        "evo.llm_dynamic_selection": "none",
        "evo.embedding_model": "none",
        "evo.meta_rec_interval": "none",
        "evo.patch_types": '["diff"]',
        "evo.patch_type_probs": "[1.0]",
    }
    # The initial program is its first generation, for which no model is asked.
    generations = wanted.iterations + 1
    return [
        *("shinka_run", "--task-dir", "task", "--results_dir", "results", "--no-verbose"),
        *("--num_generations", str(generations)),
        *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
    ]


SHINKA = Peer("shinka", "ShinkaEvolve 0.0.7", "shinka-evolve==0.0.7", _prepare)
