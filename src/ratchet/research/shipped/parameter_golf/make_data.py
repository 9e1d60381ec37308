"""Makes data for this task: `make_data.py TEXT OUT` from a text, one token for each byte, or `MODEL OUT` for shards.

With a text it writes OUT/train and OUT/val; the shipped `tiny` was made so from the corpus of nanotree. With a
SentencePiece model it writes the meta.json that belong to shards of uint16 tokens that lie in OUT/train and OUT/val.
"""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path

VALIDATION = 0.2


def from_text(text: Path, out: Path) -> None:
    content = text.read_bytes()
    known = sorted(set(content))
    tokens = array("H", (known.index(each) for each in content))
    cut = int(len(tokens) * (1 - VALIDATION))
    for name, part in (("train", tokens[:cut]), ("val", tokens[cut:])):
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "part.bin").write_bytes(part.tobytes())
    describe(out, [1] * len(known), length=32, contexts=200)


def from_model(model: Path, out: Path) -> None:
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(model))
    lengths = []
    for number in range(pieces.vocab_size()):
        if pieces.is_control(number) or pieces.is_unknown(number) or pieces.is_unused(number):
            lengths.append(0)
        elif pieces.is_byte(number):
            lengths.append(1)
        else:
            lengths.append(len(pieces.id_to_piece(number).replace("\u2581", " ").encode()))
    describe(out, lengths, length=1024, contexts=8192)


def describe(out: Path, lengths: list[int], *, length: int, contexts: int) -> None:
    (out / "train" / "meta.json").write_text(json.dumps({"vocab": len(lengths)}))
    about = {"vocab": len(lengths), "length": length, "contexts": contexts, "token_bytes": lengths}
    (out / "val" / "meta.json").write_text(json.dumps(about))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    (from_model if source.suffix == ".model" else from_text)(source, target)
