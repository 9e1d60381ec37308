"""Forges: GitHub and GitLab, their pull requests and their webhooks."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.forges.errors import (
        Forbidden,
        ForgeError,
        NoForge,
        NotThere,
        RateLimited,
        Refused,
        Unauthenticated,
        Unreachable,
    )
    from ratchet.forges.event import EventKind, ForgeEvent, Job, Trouble
    from ratchet.forges.forge import Check, CheckState, Forge, Provider, PullRequest, PullRequestState
    from ratchet.forges.opening import open_forge, provider_of
    from ratchet.forges.webhooks import Delivery, MalformedDelivery, UnsignedDelivery
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Check",
    "CheckState",
    "Delivery",
    "EventKind",
    "Forbidden",
    "Forge",
    "ForgeError",
    "ForgeEvent",
    "Job",
    "MalformedDelivery",
    "NoForge",
    "NotThere",
    "Provider",
    "PullRequest",
    "PullRequestState",
    "RateLimited",
    "Refused",
    "Trouble",
    "Unauthenticated",
    "Unreachable",
    "UnsignedDelivery",
    "open_forge",
    "provider_of",
]
