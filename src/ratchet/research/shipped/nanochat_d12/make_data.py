"""Makes data for this task: `make_data.py TOKENIZER QUESTIONS OUT` beside shards in OUT/train and OUT/val.

QUESTIONS is a directory with a file TASK.jsonl for each task of CORE, a line for each question: {"context": text,
"choices": [texts], "gold": number}. TOKENIZER is a SentencePiece model, or a
tokenizer.json of the package tokenizers. `--tiny CORPUS OUT` makes the shipped data.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Encode = Callable[[str], list[int]]


def main() -> None:
    if sys.argv[1] == "--tiny":
        tiny(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    tokenizer, questions, out = map(Path, sys.argv[1:])
    encode, lengths = opened(tokenizer)
    describe(out, lengths, length=1024, contexts=1024)
    for path in sorted(questions.glob("*.jsonl")):
        write(out, path.stem, map(json.loads, path.read_text().splitlines()), encode)


def opened(path: Path) -> tuple[Encode, list[int]]:
    if path.suffix == ".model":
        from sentencepiece import SentencePieceProcessor

        pieces = SentencePieceProcessor(model_file=str(path))
        texts = [pieces.id_to_piece(number) for number in range(pieces.vocab_size())]
        plain = [not (pieces.is_control(n) or pieces.is_unknown(n)) for n in range(len(texts))]
        sizes = [
            len(text.replace("\u2581", " ").encode()) * known
            for text, known in zip(texts, plain, strict=True)
        ]
        return pieces.encode, sizes
    from tokenizers import Tokenizer

    known = Tokenizer.from_file(str(path))
    sizes = [len(known.decode([number]).encode()) for number in range(known.get_vocab_size())]
    return lambda text: list(known.encode(text, add_special_tokens=False).ids), sizes


def tiny(corpus: Path, out: Path) -> None:
    """Whole words as tokens. Each question asks how a sentence of the corpus ends."""
    lines = [line.split() for line in corpus.read_text().splitlines()]
    words = sorted({word for line in lines for word in line})
    number = {word: place for place, word in enumerate(words)}
    chance = random.Random(0)
    chance.shuffle(lines)
    parts = {"train": lines[: len(lines) * 8 // 10], "val": lines[len(lines) * 8 // 10 :]}
    for name, part in parts.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        tokens = array("H", (number[word] for line in part for word in line))
        (out / name / "part.bin").write_bytes(tokens.tobytes())
    describe(out, [len(word) + 1 for word in words], length=12, contexts=100)
    sums = [line for line in parts["train"] if "make" in line]
    facts = [line for line in parts["train"] if "make" not in line and len(line) > 5]
    encode: Encode = lambda text: [number[word] for word in text.split()]  # noqa: E731
    for task, part in (("sums", sums), ("facts", facts)):
        write(out, task, (asked(line, part, chance) for line in part[:60]), encode)


def asked(line: list[str], others: list[list[str]], chance: random.Random) -> dict[str, Any]:
    wrong = sorted({other[-2] for other in others} - {line[-2]})
    choices = [line[-2], *chance.sample(wrong, 3)]
    return {"context": " ".join(line[:-2]), "choices": choices, "gold": 0}


def write(out: Path, task: str, questions: Iterable[dict[str, Any]], encode: Encode) -> None:
    (out / "core").mkdir(parents=True, exist_ok=True)
    with (out / "core" / f"{task}.jsonl").open("w") as file:
        for each in questions:
            choices = [encode(choice) for choice in each["choices"]]
            encoded = {"context": encode(each["context"]), "choices": choices, "gold": each["gold"]}
            file.write(json.dumps(encoded) + "\n")


def describe(out: Path, lengths: list[int], *, length: int, contexts: int) -> None:
    (out / "train" / "meta.json").write_text(json.dumps({"vocab": len(lengths)}))
    about = {"vocab": len(lengths), "length": length, "contexts": contexts, "token_bytes": lengths}
    (out / "val" / "meta.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
