"""Telling whoever listens what a tool says while it runs."""

from __future__ import annotations

from ratchet.observe.logs import logger
from ratchet.tools.call import Occasion

_log = logger(__name__)


def tell(occasion: Occasion, kind: str, text: str) -> None:
    """Say `text`, if there is any. Who listens cannot break what is listened to."""
    if not text:
        return
    try:
        occasion.listen(kind, {"text": text})
    except Exception as error:  # noqa: BLE001 - the tool goes on, and its answer is what counts
        _log.warning("nobody could be told what a tool says", kind=kind, error=str(error))
