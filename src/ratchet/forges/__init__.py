"""Forges: GitHub and GitLab, their pull requests and their webhooks."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.forges.api import (
        Forbidden,
        ForgeError,
        NoForge,
        NotThere,
        RateLimited,
        Refused,
        Unauthenticated,
        Unreachable,
    )
    from ratchet.forges.forge import (
        Check,
        CheckState,
        EventKind,
        Forge,
        ForgeEvent,
        Job,
        Provider,
        PullRequest,
        PullRequestState,
        Trouble,
    )
    from ratchet.forges.webhooks import Delivery, MalformedDelivery, UnsignedDelivery, open_forge, provider_of
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
