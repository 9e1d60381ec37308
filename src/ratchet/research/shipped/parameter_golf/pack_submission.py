"""Packs a recipe and its weights into a directory that runs by itself: `submission.py CONTEXTS OUT`."""

from __future__ import annotations

import ast
import base64
import lzma
from pathlib import Path
from typing import Any

LIMIT = 16_000_000
# A dictionary of the size that there can be takes a quarter of the memory of the usual one.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 24}]
PROGRAM, WEIGHTS = "submission.py", "weights.xz"
_STUB = """import lzma,base64,sys,json,array,pathlib as p
exec(compile(lzma.decompress(base64.b85decode({code!r})),"recipe.py","exec"))
q=json.load(sys.stdin)["question"]
n=q["length"]
c=array.array("H",base64.b64decode(q["contexts"]))
w=lzma.decompress(p.Path({weights!r}).read_bytes())
with open(p.Path(sys.argv[1])/"scores.f32","wb") as f:
 for r in predict(w,(c[i:i+n] for i in range(0,len(c),n))):f.write(array.array("f",r).tobytes())
"""


def pack(recipe: Path, weights: bytes, vocab: int, out: Path) -> dict[str, int]:
    """Write the submission into `out`, and say how many bytes it has."""
    program = packed_code(recipe.read_text())
    small = lzma.compress(weights, filters=_FILTERS)
    (out / PROGRAM).write_text(program)
    (out / WEIGHTS).write_bytes(small)
    return {"vocab": vocab, "code_bytes": len(program), "artifact_bytes": len(program) + len(small)}


def packed_code(source: str) -> str:
    small = lzma.compress(bare(source).encode(), filters=_FILTERS)
    return _STUB.format(code=base64.b85encode(small).decode(), weights=WEIGHTS)


def bare(source: str) -> str:
    """The same program without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and body and ast.get_docstring(node):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def project(asked: dict[str, Any]) -> dict[str, int]:
    """For the tool of that name: what the code of a candidate would take."""
    place = Path(asked["candidate"])
    found = next(path for name in ("recipe.py", "tiny.py") if (path := place / name).exists())
    code = len(packed_code(found.read_text()))
    return {"code_bytes": code, "limit_bytes": LIMIT, "left_for_weights": LIMIT - code}
