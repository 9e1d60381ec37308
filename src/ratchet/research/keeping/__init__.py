"""Whether a trial is kept: the noise of the baseline, the decision, and the certificate that proves it."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.keeping._certificate import certificate, certificate_json
    from ratchet.research.keeping._decide import decide
    from ratchet.research.keeping._strict import Strict, delta_text, strict
    from ratchet.research.keeping.calibration import Baseline, calibrate
    from ratchet.research.keeping.checking import check_certificate
    from ratchet.research.keeping.decided import Champion, Decided, HeldOut, Phase, Side, Taken
    from ratchet.research.keeping.noise import Noise
    from ratchet.research.keeping.rule import check_rule
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Baseline",
    "Champion",
    "Decided",
    "HeldOut",
    "Noise",
    "Phase",
    "Side",
    "Strict",
    "Taken",
    "calibrate",
    "certificate",
    "certificate_json",
    "check_certificate",
    "check_rule",
    "decide",
    "delta_text",
    "strict",
]
