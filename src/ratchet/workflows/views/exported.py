"""An export as it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.workflows.exports import Exported


def exported_record(exported: Exported) -> dict[str, Any]:
    return {
        "folder": str(exported.folder),
        "target": str(exported.target),
        "files": list(exported.files),
        "packages": list(exported.packages),
        "models": dict(exported.models),
        "recorded": exported.recorded,
        "notes": list(exported.notes),
    }
