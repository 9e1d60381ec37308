"""What the papers at the top of the repository promise. tests/docs does what the README tells."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_every_command_of_the_program_is_in_the_changelog() -> None:
    from ratchet.cli.catalogue import CATALOGUE

    said = (README.parent / "CHANGELOG.md").read_text()
    assert [name for name in CATALOGUE if not re.search(rf"\b{name}\b", said)] == []
