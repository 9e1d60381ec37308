"""Forges: GitHub and GitLab, their pull requests and their webhooks."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.forges.api import (
        ForgeError,
        ForgeForbidden,
        ForgeRefused,
        NoForge,
        NotThere,
        RateLimited,
        Unauthenticated,
        Unreachable,
    )
    from ratchet.forges.forge import (
        CheckState,
        Forge,
        ForgeCheck,
        ForgeEvent,
        ForgeEventKind,
        ForgeJob,
        Provider,
        PullRequest,
        PullRequestState,
        Trouble,
    )
    from ratchet.forges.webhooks import (
        Delivery,
        MalformedDelivery,
        UnsignedDelivery,
        check_on_forge,
        open_forge,
        provider_of,
    )
else:
    __getattr__ = on_demand(__name__)
