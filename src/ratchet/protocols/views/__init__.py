"""Projects, protocols and steps as they are shown, by the API and with `--json` by the command line."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.views._overview import overview
    from ratchet.protocols.views.attempts import attempt_records
    from ratchet.protocols.views.clarifications import clarification_record
    from ratchet.protocols.views.projects import onboarding_record, project_record, project_records
    from ratchet.protocols.views.protocols import protocol_record, spec_record
    from ratchet.protocols.views.steps import step_record
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "attempt_records",
    "clarification_record",
    "onboarding_record",
    "overview",
    "project_record",
    "project_records",
    "protocol_record",
    "spec_record",
    "step_record",
]
