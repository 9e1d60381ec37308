"""Playing the README as somebody does who has a repository, one key and nothing else."""

from __future__ import annotations

from pathlib import Path

from ratchet.modelserver import ModelServer
from tests.docs.markdown import DOCS
from tests.docs.playing import play
from tests.docs.provider import KEY, reply

README = DOCS.parent / "README.md"
REPOSITORY = """```console
mkdir my-repository && cd my-repository && git init -q -b main
echo 'def total(prices): return sum(prices)' > shop.py
cat > test_shop.py <<'TESTS'
import unittest
from shop import total


class Shop(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
TESTS
echo 'A shop that adds prices up.' > README.md
git add . && git -c user.name=reader -c user.email=reader@localhost commit -qm "Add prices up" && cd ..
```

"""


def play_readme(place: Path, server: ModelServer, **variables: str) -> None:
    """Type what it says, with a scripted model behind the key. `variables` are of the shell."""
    server.script("readme", reply, key=KEY)
    given = {"OPENAI_API_KEY": KEY, "RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL": server.openai_url("readme")}
    play(REPOSITORY + README.read_text(), place, variables={**given, **variables})
