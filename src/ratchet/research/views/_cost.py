"""What a run has used, in all and for each trial and keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger import usage as spending
from ratchet.research.views._yields import Yield, usage_record, yields
from ratchet.research.views.words import NOTHING, cell, cost_of, duration, json_text, money, table

if TYPE_CHECKING:
    from ratchet.kernel import Usage
    from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Cost:
    total: Usage
    specialists: tuple[Yield, ...]

    @property
    def trials(self) -> int:
        return sum(each.trials for each in self.specialists)

    @property
    def keeps(self) -> int:
        return sum(each.keeps for each in self.specialists)

    def to_dict(self) -> dict[str, Any]:
        return {
            **usage_record(self.total),
            "cost_usd_per_trial": _share(self.total, self.trials),
            "cost_usd_per_keep": _share(self.total, self.keeps),
            "specialists": [
                {"specialist": json_text(each.specialist), **usage_record(each.usage)}
                for each in self.specialists
            ],
        }

    def to_markdown(self) -> str:
        parts = [(each.specialist, each.usage, each.trials, each.keeps) for each in self.specialists]
        rows = [_row(*each) for each in [("all", self.total, self.trials, self.keeps), *parts]]
        return "\n".join(table(("who", "tokens", "cost", "per trial", "per keep", "time"), rows))


def cost(tx: Transaction, run_id: int) -> Cost:
    return Cost(spending.total(tx, "run", run_id), yields(tx, run_id).rows)


def _share(usage: Usage, number: int) -> float | None:
    known = usage.whole_cost_usd
    return known / number if number and known is not None else None


def _row(who: str, usage: Usage, trials: int, keeps: int) -> list[str]:
    return [
        cell(who, 40),
        f"{usage.tokens:,}",
        cost_of(usage),
        *(
            money(usage.cost_microusd / number) if number and not usage.unpriced_tokens else NOTHING
            for number in (trials, keeps)
        ),
        duration(usage.wall_seconds),
    ]
