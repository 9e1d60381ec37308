"""What models have answered in a run, from the moment that it is paid for: a process that dies asks nothing twice."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from ratchet.kernel import NotFound
from ratchet.ledger import Transaction, to_json
from ratchet.ledger.step_results import find_step_result, keep_step_result
from ratchet.runtime import JobContext
from ratchet.tools.call import ToolResult, ToolUse
from ratchet.workflows.running.values import keep_value, read_value


@dataclass(frozen=True, slots=True)
class StepAnswers:
    """See `tools.call.Answers`: the answers to one try at a step. What a person lets be done again is asked again."""

    job: JobContext
    step: str
    number: int

    def find(self, prompt: str) -> ToolResult | None:
        with self.job.ledger.read() as tx:
            found = find_step_result(tx, self._key(prompt), not_before=0)
        if found is None:
            return None
        try:
            return ToolResult(read_value(self.job.ledger.artifacts, found.value), ToolUse(**found.metrics))
        except NotFound:
            return None

    def keep(self, tx: Transaction, prompt: str, called: ToolResult) -> None:
        kept = keep_value(
            tx, self.job.ledger.artifacts, called.value, run_id=self.job.run_id, name=f"answer-{self.step}"
        )
        keep_step_result(tx, self._key(prompt), kept, asdict(called.use))

    def _key(self, prompt: str) -> str:
        place = ["answer 1", self.job.run_id, self.job.job.id, self.step, self.number, prompt]
        return hashlib.sha256(to_json(place).encode()).hexdigest()
