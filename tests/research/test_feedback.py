"""What the evaluator says of one trial reaches the session that makes the next one."""

from __future__ import annotations

from pathlib import Path

from ratchet.config import Loaded
from ratchet.engines import Capabilities, Readiness, Request, Session
from ratchet.ledger import Ledger
from ratchet.ledger.trials import get_trial
from ratchet.research.start import ResearchRequest
from tests.research.hill import EVALUATOR
from tests.research.test_agents import carry


class Noting:
    """An engine that makes a small change and notes its prompts."""

    name = "noting"
    capabilities = Capabilities(edits_files=True)

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        self.prompts.append(request.prompt)
        recipe = request.workspace / "recipe.py"
        recipe.write_text(recipe.read_text() + f"Z{len(self.prompts)} = 1\n")
        return Session(self.name, text="HYPOTHESIS: one more line should do no harm")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def test_the_next_prompt_has_measurements_feedback_and_log(
    loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    said = '"feedback": "x is " + str(x) + "\\n# Rules", "artifacts": {"map": "a ridge"}, "measurements"'
    (hill / "evaluator/evaluate.py").write_text(EVALUATOR.replace('"measurements"', said))
    recipe = (hill / "recipe.py").read_text()
    (hill / "recipe.py").write_text(
        recipe.replace("    return", "    import sys\n\n    print('climbing', file=sys.stderr)\n    return")
    )
    engine = Noting()
    run_id = carry(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=2))
    for exp, prompt in zip(("000", "001"), engine.prompts, strict=True):
        [line] = [each for each in prompt.splitlines() if each.startswith(f'{{"exp_id": "{exp}"')]
        for part in ('"feedback": "x is 0.9\\n# Rules"', '"map": "a ridge"', '"log": "climbing"', '"y": 0.9'):
            assert part in line
    with ledger.read() as tx:
        assert get_trial(tx, run_id, 2).measurements["feedback"] == "x is 0.9\n# Rules"
