"""Writes the three texts of this task by a grammar: `python make_data.py`, or `--seed 7` for texts nobody has seen.

They are pages of a harbour's log book. Ships, people and goods come back, so that long contexts are worth something;
now and then there is a stranger, whose name nobody can foresee.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path


def words(text: str) -> list[str]:
    return text.split()


FOLDER = Path(__file__).resolve().parent
SIZES = {"inputs/train.txt": 200_000, "evaluator/valid.txt": 32_000, "evaluator/held_out.txt": 32_000}

ONSETS = words("b br c cr d dr f fl g gr h k l m n p pl r s sh sk st t th tr v w")
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ie", "oa", "ou"]
ENDS = ["d", "l", "ld", "ll", "m", "n", "nd", "ng", "r", "rd", "rn", "s", "st", "t", "ve", "y"]
WEATHER = ["clear", "cloudy", "cold and grey", "bright", "misty", "wet", "windy", "still and warm", "foggy"]
WINDS = ["north", "north east", "east", "south east", "south", "south west", "west", "north west"]
STRENGTHS = ["a light wind", "a fresh breeze", "a strong wind", "hardly a breath of wind", "half a gale"]
GOODS = words("timber salt wool barley coal herring copper hides oil bricks tea cider slate rope flax")
UNITS = ["barrels", "sacks", "crates", "tons", "bales"]
KINDS = ["schooner", "brig", "ketch", "cutter", "barge", "steamer", "trawler"]
DAMAGE = [
    "a torn mainsail",
    "a leak below the water line",
    "a broken rudder",
    "a cracked mast",
    "a lost anchor",
]
TRADES = ["harbour master", "pilot", "sail maker", "customs officer", "cooper", "lamp keeper", "ferryman"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
TIMES = ["before sunrise", "at first light", "in the forenoon", "at noon", "towards evening", "after dark"]
REMARKS = [
    "Nothing else of note was seen",
    "The tide was higher than the tables say",
    "Two boats were pulled up on the sand",
    "The bell on the mole was rung until the fog lifted",
    "Everyone was paid before the office closed",
    "The crane stood idle for want of grease",
    "There was singing on the quay until late",
    "The light on the point was seen to fail twice",
]


class World:
    """The ships, people and places that every page knows."""

    def __init__(self, chance: random.Random) -> None:
        self.ports = [word(chance, 2).title() for _ in range(24)]
        self.families = [word(chance, 2).title() for _ in range(60)]
        self.people = {trade: chance.choice(self.families) for trade in TRADES}
        self.ships = [
            {
                "name": f"{chance.choice(['', '', 'Lady ', 'Old ', 'Star of ', 'Good '])}{word(chance, 2).title()}",
                "kind": chance.choice(KINDS),
                "home": chance.choice(self.ports),
                "master": chance.choice(self.families),
                "goods": chance.choice(GOODS),
                "unit": chance.choice(UNITS),
            }
            for _ in range(48)
        ]


def word(chance: random.Random, syllables: int) -> str:
    parts = [chance.choice(ONSETS) + chance.choice(VOWELS) for _ in range(syllables)]
    return "".join(parts) + chance.choice(ENDS)


def page(world: World, chance: random.Random, number: int) -> str:
    """One day: the weather, a few ships, perhaps a remark."""
    heading = f"{DAYS[number % 7]}, day {number}. "
    wind = f"{chance.choice(STRENGTHS)} from the {chance.choice(WINDS)}"
    weather = f"The morning was {chance.choice(WEATHER)}, with {wind}."
    # Some ships call often and some hardly ever.
    ships = [
        world.ships[min(int(chance.expovariate(0.08)), len(world.ships) - 1)]
        for _ in range(chance.randint(1, 4))
    ]
    sentences = [weather, *(sentence for ship in ships for sentence in visit(world, chance, ship))]
    if chance.random() < 0.4:
        sentences.append(f"{chance.choice(REMARKS)}.")
    return heading + " ".join(sentences) + "\n\n"


def visit(world: World, chance: random.Random, ship: dict[str, str]) -> list[str]:
    name, master, when = ship["name"], ship["master"], chance.choice(TIMES)
    amount = f"{chance.randint(2, 80)} {ship['unit']} of {ship['goods']}"
    other = ship["home"] if chance.random() < 0.6 else chance.choice(world.ports)
    told = [
        chance.choice(
            [
                f"The {ship['kind']} {name} of {ship['home']} was moored {when} with {amount}.",
                f"{when.capitalize()} the {name}, {master} master, arrived from {other}.",
                f"The {name} left for {other} {when}, carrying {amount}.",
                f"The {name} lay at the quay and took on {amount} for {other}.",
            ]
        )
    ]
    if chance.random() < 0.35:
        trade = chance.choice(TRADES)
        told.append(
            chance.choice(
                [
                    f"Mr {world.people[trade]}, the {trade}, went on board and found all in order.",
                    f"Captain {master} spoke of {chance.choice(DAMAGE)}, and {world.people[trade]} was sent for.",
                    f"She was charged {chance.randint(1, 30)} shillings, which Captain {master} paid at once.",
                    f"Her master asked the {trade} for {chance.randint(2, 9)} days, which were granted.",
                ]
            )
        )
    if chance.random() < 0.25:
        told.append(f"A stranger by the name of {word(chance, 2).title()} came ashore from her.")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1913)
    chance = random.Random(parser.parse_args().seed)
    world = World(chance)
    for path, size in SIZES.items():
        text = ""
        while len(text) < size:
            text += page(world, chance, chance.randint(1, 365))
        (FOLDER / path).write_text(text[:size], encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
