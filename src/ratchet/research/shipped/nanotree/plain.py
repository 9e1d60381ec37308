"""The plain baseline: the choice that most often followed the longest known end of the context. See train.py."""

import json
import sys
from collections import Counter
from pathlib import Path

LONGEST = 4


def main(inputs: Path, out: Path) -> None:
    questions = json.load(sys.stdin)["question"]["questions"]
    seen: Counter[tuple[str, ...]] = Counter()
    for line in (inputs / "corpus.txt").read_text().splitlines():
        words = line.split()
        for end in range(1, len(words) + 1):
            seen.update(tuple(words[start:end]) for start in range(max(0, end - LONGEST - 1), end))
    answers = [answer(seen, each["context"].split(), each["choices"]) for each in questions]
    (out / "answers.json").write_text(json.dumps(answers))


def answer(seen: Counter[tuple[str, ...]], context: list[str], choices: list[str]) -> int:
    for length in range(min(LONGEST, len(context)), -1, -1):
        end = tuple(context[len(context) - length :])
        counts = [seen[(*end, choice)] for choice in choices]
        if any(counts):
            return counts.index(max(counts))
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
