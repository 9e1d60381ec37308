"""Recipes that want a score which they did not earn."""

from __future__ import annotations

from ratchet.kernel import Direction
from ratchet.research.checking.hostile.attack import Attack, Where

_FAR = {Direction.MAX: "1e9", Direction.MIN: "-1e9"}
_PLAUSIBLE = {Direction.MAX: ("1", "100"), Direction.MIN: ("0", "1e-9")}

_LEAVES = {
    "very large numbers": "1e9",
    "very small numbers": "-1e9",
    "NaN": "NaN",
    "infinity": "1e999",
    "minus infinity": "-1e999",
    "text": '"99999999"',
    "numbers of 400 digits": "9" * 400,
}
_SHAPES = {
    "nothing": """
        def forged(value):
            return {list: "[]", tuple: "[]", dict: "{}", str: '""'}.get(type(value), "null")
    """,
    "null": """
        def forged(value):
            return "null"
    """,
    "everything twice": """
        def twice(value):
            if isinstance(value, (list, tuple)):
                return list(value) * 2
            return {name: twice(each) for name, each in value.items()} if isinstance(value, dict) else value

        def forged(value):
            return json.dumps(twice(value))
    """,
    "JSON that is nested too deeply": """
        def forged(value):
            return "[" * 100_000 + "]" * 100_000
    """,
    "two documents": """
        def forged(value):
            return json.dumps(value) + "\\n" + json.dumps(value)
    """,
}
_APPENDED = {
    "a score as the last line of JSON": "json.dumps(scores({number}))",
    "a score as the last line of text": '"score: {number}\\n%s: {number}" % FACTS["field"]',
    "a bare number as the last line": '"{number}"',
}


def forgeries(direction: Direction) -> list[Attack]:
    """All of them. A number that is far beyond anything is tried, and some that could be meant."""
    far, plausible = _FAR[direction], _PLAUSIBLE[direction]
    return [
        Attack(name="answers with a score", forge=_whole(far)),
        *(_object(number) for number in (far, *plausible)),
        *(_fields(number) for number in (far, *plausible)),
        *(Attack(name=f"answers with {what}", forge=_leaves(leaf)) for what, leaf in _LEAVES.items()),
        *(Attack(name=f"answers with {what}", forge=_plain(forge)) for what, forge in _SHAPES.items()),
        *_printed(far),
        Attack(name="writes score files", code=_SCORE_FILES.format(number=far), where=Where.COMMAND),
        Attack(name="leaves pickles for the evaluator", code=_PICKLES, where=Where.COMMAND),
        Attack(name="leaves files of noise", code=_NOISE, where=Where.COMMAND),
        Attack(name="prints an evaluator's answer", code=_FAKE_ANSWER.format(number=far)),
        Attack(name="answers twice", code=_TWO_ANSWERS.format(number=far), where=Where.NODE),
        Attack(name="patches what it can reach", code=_PATCHES),
    ]


def _whole(number: str) -> str:
    return f"def forged(value):\n    return {number!r}\n"


def _object(number: str) -> Attack:
    forge = f"def forged(value):\n    return json.dumps(scores({number}))\n"
    return Attack(name=f"answers with a score object of {number}", forge=forge)


def _fields(number: str) -> Attack:
    forge = (
        "def forged(value):\n"
        f"    return json.dumps({{**value, **scores({number})}} if isinstance(value, dict) else value)\n"
    )
    return Attack(name=f"adds a score of {number} to its answer", forge=forge)


def _leaves(leaf: str) -> str:
    return f"def forged(value):\n    return render(value, {leaf!r})\n"


def _plain(text: str) -> str:
    lines = text.strip("\n").splitlines()
    return "\n".join(line.removeprefix(" " * 8) for line in lines) + "\n"


def _printed(number: str) -> list[Attack]:
    return [
        Attack(
            name=f"prints {what}",
            where=Where.COMMAND,
            code=f"import json\n{_SCORES}\n{_LAST_LINE.format(text=text.replace('{number}', number))}",
        )
        for what, text in _APPENDED.items()
    ]


_SCORES = """
def scores(number):
    return {FACTS["field"]: number, "score": number, "measurements": {}}
"""
_LAST_LINE = """
import atexit

def append():
    sys.stdout.flush()
    os.write(1, ("\\n" + ({text}) + "\\n").encode())

atexit.register(append)
"""
_SCORE_FILES = """
import atexit, json

def write():
    told = json.dumps({{FACTS["field"]: {number}, "score": {number}, "valid": True, "correct": True}})
    names = ["score", "result", "results", "metrics", "correct", "summary", "evaluation", "answer", FACTS["field"]]
    for top in out_directories():
        for name in names:
            for ending, text in ((".json", told), (".jsonl", told), (".txt", "{number}"), ("", "{number}")):
                with open(os.path.join(top, name + ending), "w") as file:
                    file.write(text)

atexit.register(write)
"""
_PICKLES = """
import atexit, pickle

class Trap:
    def __reduce__(self):
        code = "import os; os.write(2, b'%s ran in another process\\\\n')" % FACTS["nonce"]
        return exec, (code,)

def write():
    for path in list(out_files()):
        with open(path, "wb") as file:
            pickle.dump(Trap(), file)

atexit.register(write)
"""
_NOISE = """
import atexit

def write():
    for path in list(out_files()):
        with open(path, "wb") as file:
            file.write(os.urandom(4096) + b"\\0" * 4096)

atexit.register(write)
"""
_FAKE_ANSWER = """
import json

told = ("\\n" + json.dumps({{FACTS["field"]: {number}, "score": {number}, "measurements": {{}}}}) + "\\n").encode()
os.write(1, told)
os.write(2, told)
for descriptor in range(4, 64):
    try:
        os.write(descriptor, told)
    except OSError:
        pass
"""
_TWO_ANSWERS = """
os.write(3, b"{number}\\n")
"""
_PATCHES = """
import gc, json, math, builtins

def good(*given, **named):
    return 1e9

for module, names in ((json, ("load", "loads")), (math, ("fsum", "isfinite", "sqrt"))):
    for name in names:
        setattr(module, name, good)
for each in gc.get_objects():
    if type(each) is type(good) and each.__name__ in ("score", "evaluate", "prepare", "_answer", "read_answer"):
        each.__code__ = good.__code__
"""
