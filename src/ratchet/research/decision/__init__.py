"""Whether a trial is kept: the noise of the baseline, the decision, and the certificate that proves it."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.decision._certificate import (
        KEY_FILE,
        CertificateKey,
        bound_to,
        certificate,
        certificate_json,
        check_certificate,
        environment_hash,
        is_signed,
        read_certificate,
    )
    from ratchet.research.decision.comparison import MeasuredBaseline, calibrate, decide
    from ratchet.research.decision.outcome import Champion, Decided, Noise, Phase, Side
    from ratchet.research.decision.rule import delta_text, run_level, strict
else:
    __getattr__ = on_demand(__name__)
