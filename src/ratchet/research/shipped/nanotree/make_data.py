"""Writes the corpora and the questions of this task: `python make_data.py`, or `--seed 7` for others.

There are two invented worlds, one that the search sees and one held out. They share a grammar and common words; the
people, their facts and the sums that are never shown differ. Each world is a corpus and questions about it.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any


def words(text: str) -> list[str]:
    return text.split()


FOLDER = Path(__file__).resolve().parent
NUMBERS = words(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
LARGEST_TERM = 10
FACTS = {
    "trade": ("{who} is a {what}", "as a {what} {who} earns well", "for years {who} is a {what}"),
    "food": ("{who} eats {what}", "every day {who} eats {what}", "at home {who} eats some {what}"),
    "pet": ("{who} keeps a {what}", "in the yard {who} keeps a {what}", "a {what} belongs to {who}"),
    "land": ("{who} lives in {what}", "now {who} lives in {what}", "far away in {what} lives {who}"),
}
WORDS = {
    "trade": words("baker miller weaver sailor doctor painter mason tailor farmer clerk"),
    "food": words("bread soup cheese rice apples beans fish honey porridge eggs"),
    "pet": words("dog cat goat parrot pony rabbit hen donkey tortoise ferret"),
}
THINGS = words("boat lamp house wagon tower bridge horse bell garden window machine letter")
VERBS = words("stand wait move shine fall rest turn open break sing")
PLACES = ("near", "behind", "above", "beside")
COLOURS = words("red blue green white black yellow brown grey")
GOODS = words("box cup hat ball coat chair book plate")
SYLLABLES = words("ka lo mi ren tu sa vel dor ni pa gor hes lin ma ro su tel va zen bo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2026)
    chance = random.Random(parser.parse_args().seed)
    asked = {}
    for split, place in {"visible": "inputs", "held_out": "held_out"}.items():
        sentences, asked[split] = world(chance)
        (FOLDER / place / "corpus.txt").write_text("".join(f"{each} .\n" for each in sentences))
    lines = (
        f'"{split}": [\n' + ",\n".join(json.dumps(each) for each in found) + "\n]"
        for split, found in asked.items()
    )
    (FOLDER / "evaluator" / "questions.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def world(chance: random.Random) -> tuple[list[str], list[dict[str, Any]]]:
    """Sentences to learn from, and questions. In a question the first choice is the right one."""
    parts = [facts(chance), agreement(chance), sums(chance), bindings(chance)]
    sentences = [sentence for shown, _ in parts for sentence in shown]
    chance.shuffle(sentences)
    return sentences, [question for _, asked in parts for question in asked]


def question(kind: str, context: str, right: str, wrong: list[str]) -> dict[str, Any]:
    return {"kind": kind, "context": context, "choices": [right, *wrong]}


def facts(chance: random.Random) -> tuple[list[str], list[dict[str, Any]]]:
    """Who does what. Each fact is told a few times; the way in which it is asked was heard of others."""
    names = chance.sample([a + b for a in SYLLABLES for b in SYLLABLES if a != b], 50)
    people, lands = names[:40], [f"{name}land" for name in names[40:]]
    shown, asked = [], []
    for who in people:
        for kind, forms in FACTS.items():
            words = WORDS.get(kind, lands)
            what = chance.choice(words)
            hidden = chance.randrange(3)
            told = [form for number, form in enumerate(forms) if number != hidden]
            shown += [form.format(who=who, what=what) for form in told * 3]
            ends = [form for form in forms if form.endswith("{what}")]
            if chance.random() < 0.55:
                context = chance.choice(ends).removesuffix("{what}").format(who=who).strip()
                others = [word for word in words if word != what]
                asked.append(question("facts", context, what, chance.sample(others, 3)))
    return shown, asked


def agreement(chance: random.Random) -> tuple[list[str], list[dict[str, Any]]]:
    """A verb follows its own noun, not the one that stands next to it."""

    def subject() -> tuple[str, bool]:
        first, second = chance.sample(THINGS, 2)
        many = chance.random() < 0.5
        place = (
            f" {chance.choice(PLACES)} the {second}{chance.choice(['', 's'])}"
            if chance.random() < 0.7
            else ""
        )
        return f"the {first}{'s' if many else ''}{place}", many

    shown, asked = [], []
    for _ in range(900):
        told, many = subject()
        shown.append(f"{told} {chance.choice(VERBS)}{'' if many else 's'}")
    while len(asked) < 70:
        told, many = subject()
        verb = chance.choice(VERBS)
        right, wrong = (verb, f"{verb}s") if many else (f"{verb}s", verb)
        asked.append(question("agreement", told, right, [wrong]))
    return shown, asked


def sums(chance: random.Random) -> tuple[list[str], list[dict[str, Any]]]:
    """Some sums are never shown, and those are asked."""
    pairs = [(a, b) for a in range(1, LARGEST_TERM + 1) for b in range(1, LARGEST_TERM + 1)]
    chance.shuffle(pairs)
    shown = [f"{NUMBERS[n - 1]} comes before {NUMBERS[n]}" for n in range(1, len(NUMBERS))] * 6
    shown += [f"{NUMBERS[a - 1]} and {NUMBERS[b - 1]} make {NUMBERS[a + b - 1]}" for a, b in pairs[40:]] * 8
    asked = []
    for a, b in pairs[:40]:
        near = [n for n in range(a + b - 3, a + b + 4) if 1 <= n <= len(NUMBERS) and n != a + b]
        wrong = [NUMBERS[n - 1] for n in chance.sample(near, 3)]
        asked.append(
            question("sums", f"{NUMBERS[a - 1]} and {NUMBERS[b - 1]} make", NUMBERS[a + b - 1], wrong)
        )
    return shown, asked


def bindings(chance: random.Random) -> tuple[list[str], list[dict[str, Any]]]:
    """Which of two things has which colour is said only a few words before."""

    def scene() -> tuple[str, str, list[str]]:
        goods, colours = chance.sample(GOODS, 2), chance.sample(COLOURS, 2)
        which = chance.randrange(2)
        told = f"a {colours[0]} {goods[0]} and a {colours[1]} {goods[1]} so the {goods[which]} is"
        rest = [colour for colour in COLOURS if colour not in colours]
        return told, colours[which], [colours[1 - which], *chance.sample(rest, 2)]

    shown = []
    for _ in range(700):
        told, colour, _ = scene()
        shown.append(f"{told} {colour}")
    asked = [question("bindings", *scene()) for _ in range(60)]
    return shown, asked


if __name__ == "__main__":
    main()
