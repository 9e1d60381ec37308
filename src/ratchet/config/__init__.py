"""Settings: what may be configured, where each value came from, and what is wrong with it."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.config.file import write_initial
    from ratchet.config.keys import (
        Artifacts,
        BudgetLimits,
        BudgetSettings,
        Log,
        Queue,
        RuntimeSettings,
        Server,
        Tracing,
    )
    from ratchet.config.load import Loaded, Origin, load_settings
    from ratchet.config.redaction import DatabaseUrl
    from ratchet.config.settings import Settings
else:
    __getattr__ = on_demand(__name__)
