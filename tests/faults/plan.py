"""What a seed does: the work that is asked for, and which fault happens where. A seed says all of it."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.shim import Action, Call, Place

PARTITION = "partition"
PARTITION_EVERY = 20
SWALLOW = "swallow the commit of"
FILES = (Call.OPEN, Call.WRITE, Call.SYNC, Call.RENAME, Call.UNLINK, Call.MKDIR)
HOME = (Place.LEDGER, Place.OBJECTS, Place.REFS, Place.ARTIFACTS, Place.OTHER)
EVERYWHERE = tuple(Place)
# About how often a life makes such a call; a fault beyond that never happens.
OFTEN = {
    (Call.WRITE, Place.LEDGER): 400,
    (Call.SYNC, Place.LEDGER): 80,
    (Call.NOTE, Place.OTHER): 60,
}
SELDOM = 12
DEADLY = (Action.KILL, Action.CUT, Action.TEAR, Action.JUMP)


@dataclass(frozen=True)
class Fault:
    """`action` at the calls numbered `first` to `last` of those kinds in those places, counted over the life."""

    action: Action
    calls: tuple[Call, ...]
    places: tuple[Place, ...]
    first: int
    last: int
    error: int = 0
    jump_seconds: int = 0

    def __str__(self) -> str:
        what = self.action.name.lower()
        if self.error:
            what += f" with {errno.errorcode[self.error]}"
        if self.jump_seconds:
            what += f" the clock by {self.jump_seconds:+d} s"
        calls = "|".join(call.name.lower() for call in self.calls)
        places = "anywhere" if self.places == EVERYWHERE else "|".join(map(_lower, self.places))
        if self.last == self.first:
            return f"{what} at {calls} {self.first} ({places})"
        return f"{what} from {calls} {self.first} to {self.last} ({places})"


def _lower(place: Place) -> str:
    return place.name.lower()


@dataclass(frozen=True)
class Cut:
    """A fault of the connection to the database: what happens to the `nth` piece that goes through it, or the first
    after that in whose transaction `text` was said."""

    action: str
    nth: int
    text: str = ""

    def __str__(self) -> str:
        told = f"{self.action} the connection at piece {self.nth}"
        return f"{told} after {self.text!r}" if self.text else told


@dataclass(frozen=True)
class Life:
    """One life of the workers, from their start to their death or to the end of all work."""

    faults: tuple[Fault, ...] = ()
    cuts: tuple[Cut, ...] = ()
    workers: int = 1

    @property
    def must_end(self) -> bool:
        """Whether its work ends whatever happens: no process is killed, and the clock is right."""
        return not any(fault.action in DEADLY for fault in self.faults)

    def __str__(self) -> str:
        told = "; ".join(map(str, (*self.faults, *self.cuts))) or "no fault"
        return told if self.workers == 1 else f"{self.workers} workers; {told}"


@dataclass(frozen=True)
class Act:
    """What the client does: `job`, `climb`, `steps`, `pause`, `resume` or `cancel`. Its name is unique."""

    do: str
    name: str
    height: int = 1
    fails: int = 0
    bytes: int = 0
    key: str | None = None
    delay_ms: int = 0

    def __str__(self) -> str:
        more = {"height": self.height - 1, "fails": self.fails, "bytes": self.bytes, "key": self.key}
        told = [f"{name}={getattr(self, name)}" for name, value in more.items() if value]
        return " ".join([self.do, self.name, *told])


@dataclass(frozen=True)
class Plan:
    seed: int
    kind: str
    acts: tuple[Act, ...]
    lives: tuple[Life, ...]
    budget: int | None

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.kind}", f"  work: {'; '.join(map(str, self.acts))}"]
        if self.budget is not None:
            lines.append(f"  budget of the project: {self.budget} tokens")
        lines += [f"  life {number}: {life}" for number, life in enumerate(self.lives, 1)]
        return "\n".join([*lines, "  then a life without faults"])


def _at(action: Action, call: Call, place: Place, nth: int) -> Fault:
    return Fault(action, (call,), (place,), nth, nth)


def _regression(seed: int, kind: str, acts: Sequence[Act], *lives: Life) -> Plan:
    return Plan(seed, kind, tuple(acts), lives, None)


_CLIMB = Act("climb", "climb-1")
_LARGE = Act("job", "job-0", height=2, bytes=70_000)
REGRESSIONS: tuple[Plan, ...] = (
    # A worker that found a thread for none of its places claimed nothing any more.
    _regression(
        -6,
        "room",
        [Act("job", f"job-{number}") for number in range(3)],
        Life((Fault(Action.FAIL, (Call.THREAD,), EVERYWHERE, 7, 9, errno.ENOMEM),)),
    ),
    # A claim that the database had confirmed to a broken connection was nobody's.
    _regression(-5, PARTITION, [_LARGE], Life(cuts=(Cut(SWALLOW, 1, "UPDATE jobs SET"),))),
    # What a session used was charged once more when the first charge was not confirmed.
    _regression(-4, PARTITION, [_CLIMB], Life(cuts=(Cut(SWALLOW, 1, "INSERT INTO usage "),))),
    # A ref that has moved, but not surely on disk, ended its attempt as one that was not kept.
    _regression(
        -3, "room", [_CLIMB], Life((Fault(Action.FAIL, (Call.SYNC,), (Place.REFS,), 5, 6, errno.EIO),))
    ),
    # These two find the bugs that tests plant.
    _regression(
        -2,
        "power",
        [Act("job", f"job-{number}", height=3) for number in range(4)],
        *(Life((_at(Action.CUT, Call.NOTE, Place.OTHER, 4),)) for _ in range(3)),
    ),
    _regression(
        -1,
        "freeze",
        [Act("job", "job-0", height=6)],
        Life((_at(Action.STOP, Call.NOTE, Place.OTHER, 3),), workers=2),
    ),
)
"""What has broken something, each with the number of its seed below zero, the last first."""


def make_plan(seed: int) -> Plan:
    if seed < 0:
        return REGRESSIONS[seed]
    chance = random.Random(f"ratchet faults {seed}")
    if seed % PARTITION_EVERY == PARTITION_EVERY - 1:
        kind = PARTITION
    else:
        kind = chance.choices(("power", "kill", "room", "clock", "freeze", "mixed"), (34, 20, 20, 8, 6, 12))[
            0
        ]
    acts = _acts(chance)
    budget = chance.choice((None, None, 10, 20, 30))
    return Plan(seed, kind, acts, _lives(chance, kind), budget)


def _acts(chance: random.Random) -> tuple[Act, ...]:
    acts = [Act("climb", "climb-1", height=chance.choice((1, 1, 2)))]
    if chance.random() < 0.3:
        acts.append(Act("climb", "climb-2"))
    if chance.random() < 0.7:
        acts.append(Act("steps", "steps-1", height=chance.choice((1, 2, 3))))
    acts += [
        Act(
            "job",
            f"job-{number}",
            height=chance.choice((1, 2)),
            fails=chance.choice((0, 0, 1, 2)),
            bytes=chance.choice((0, 100, 70_000)),
            key=chance.choice((None, "one")),
            delay_ms=chance.choice((0, 0, 20)),
        )
        for number in range(chance.choice((1, 2, 3)))
    ]
    chance.shuffle(acts)
    runs = [act.name for act in acts if act.do in ("climb", "steps")]
    if chance.random() < 0.3:
        name = chance.choice(runs)
        acts += [Act("pause", f"pause:{name}"), Act("resume", f"resume:{name}")]
    if chance.random() < 0.15:
        acts.append(Act("cancel", f"cancel:{chance.choice(runs)}"))
    return tuple(acts)


def _lives(chance: random.Random, kind: str) -> tuple[Life, ...]:
    if kind == PARTITION:
        cuts = sorted(chance.sample(range(1, 400), chance.choice((1, 2, 3))))
        return (Life(cuts=tuple(_cut(chance, nth) for nth in cuts), workers=2),)
    if kind == "freeze":
        return (Life((_at_note(chance, Action.STOP),), workers=2),)
    return tuple(_life(chance, kind) for _ in range(chance.choice((1, 1, 2, 3))))


def _cut(chance: random.Random, nth: int) -> Cut:
    action = chance.choice(("drop", "drop the answer of", "freeze", SWALLOW, SWALLOW, SWALLOW))
    if action != SWALLOW:
        return Cut(action, nth)
    texts = (
        "",
        "INSERT INTO usage ",
        "UPDATE jobs SET",
        "INSERT INTO jobs",
        "INSERT INTO stages",
        "UPDATE runs",
    )
    return Cut(action, nth, chance.choice(texts))


def _life(chance: random.Random, kind: str) -> Life:
    match kind:
        case "power":
            return Life((_death(chance, Action.CUT),))
        case "kill":
            return Life((_death(chance, chance.choice((Action.KILL, Action.KILL, Action.TEAR))),))
        case "room":
            return Life(
                tuple(_shortage(chance) for _ in range(chance.choice((1, 1, 2)))),
                workers=chance.choice((1, 1, 2)),
            )
        case "clock":
            return Life((_jump(chance), _death(chance, chance.choice((Action.KILL, Action.CUT)))))
        case _:
            return Life((_shortage(chance), _jump(chance), _death(chance, Action.CUT)))


def _nth(chance: random.Random, call: Call, place: Place) -> int:
    """Early calls as likely as late ones in their order of size."""
    return int(OFTEN.get((call, place), SELDOM) ** chance.random())


def _death(chance: random.Random, action: Action) -> Fault:
    if action is Action.TEAR:
        call, place = Call.WRITE, chance.choice(HOME)
    elif chance.random() < 0.25:
        return _at_note(chance, action)
    else:
        call = chance.choice((Call.WRITE, Call.WRITE, Call.SYNC, Call.SYNC, *FILES))
        place = chance.choice((Place.LEDGER, *HOME))
        if place is Place.LEDGER:
            call = chance.choice((Call.WRITE, Call.SYNC))
    nth = _nth(chance, call, place)
    return Fault(action, (call,), (place,), nth, nth)


def _at_note(chance: random.Random, action: Action) -> Fault:
    nth = _nth(chance, Call.NOTE, Place.OTHER)
    return Fault(action, (Call.NOTE,), (Place.OTHER,), nth, nth)


def _shortage(chance: random.Random) -> Fault:
    """A machine that lacks something for a while."""
    how = chance.choice(("space", "space", "descriptors", "memory", "memory", "failing", "short"))
    length = chance.choice((1, 1, 3, 10))
    if how == "space":
        places = HOME if chance.random() < 0.5 else (chance.choice(HOME),)
        # Of a directory that it cannot make, or a ref that it cannot write, git does not say why: that is a failed try.
        length = min(length, 2) if places == (Place.REFS,) else length
        calls = (Call.WRITE, Call.RENAME) if chance.random() < 0.5 else (Call.WRITE,)
        first = _nth(chance, Call.WRITE, places[0])
        return Fault(Action.FAIL, calls, places, first, first + length - 1, errno.ENOSPC)
    if how == "descriptors":
        first = int(600 ** chance.random())
        return Fault(Action.FAIL, (Call.OPEN, Call.PIPE), EVERYWHERE, first, first + length - 1, errno.EMFILE)
    if how == "memory":
        call = chance.choice((Call.SPAWN, Call.THREAD, Call.OPEN))
        first = int((600 if call is Call.OPEN else 20) ** chance.random())
        return Fault(Action.FAIL, (call,), EVERYWHERE, first, first + length - 1, errno.ENOMEM)
    if how == "failing":
        place = chance.choice(HOME)
        first = _nth(chance, Call.SYNC, place)
        # A failing disk fails work, in the end; not at once.
        return Fault(Action.FAIL, (Call.SYNC,), (place,), first, first + min(length, 2) - 1, errno.EIO)
    place = chance.choice(HOME)
    first = _nth(chance, Call.WRITE, place)
    return Fault(Action.SHORT, (Call.WRITE,), (place,), first, first + length - 1)


def _jump(chance: random.Random) -> Fault:
    fault = _at_note(chance, Action.JUMP)
    by = chance.choice((-86_400, -3600, -5, 5, 3600, 86_400))
    return Fault(fault.action, fault.calls, fault.places, fault.first, fault.last, jump_seconds=by)


def repeat_command(seed: int) -> str:
    return f"make soak AREA=faults SEED={seed} SEEDS=1"
