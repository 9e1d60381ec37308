"""CI as it reaches protocols: deliveries of webhooks, what they say about commits, and what becomes of steps."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.ci.asking import ask_forge
    from ratchet.protocols.ci.receiving import Received, receive
    from ratchet.protocols.ci.settling import settle_commit
    from ratchet.protocols.ci.summary import ci_summary
    from ratchet.protocols.ci.taking import Taken, take_delivery
    from ratchet.protocols.ci.verdict import CiVerdict, judge_checks, required_checks
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "CiVerdict",
    "Received",
    "Taken",
    "ask_forge",
    "ci_summary",
    "judge_checks",
    "receive",
    "required_checks",
    "settle_commit",
    "take_delivery",
]
