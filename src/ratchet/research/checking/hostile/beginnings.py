"""The code that all hostile recipes begin with. It runs in the sandbox, in whatever Python the task uses."""

BEGIN = """
import os, sys

sys.hostile = True

def tell(text):
    os.write(2, ("\\n%s %s\\n" % (FACTS["nonce"], text)).encode("utf-8", "replace"))

def leave(code=3):
    os._exit(code)

def out_directories():
    found = [os.environ["RATCHET_OUT"]] if "RATCHET_OUT" in os.environ else []
    return found + [name for name in FACTS["output_dirs"] if os.path.isdir(name)]

def out_files():
    for top in out_directories():
        for directory, _, names in os.walk(top):
            for name in names:
                yield os.path.join(directory, name)

tell("ran " + os.urandom(4).hex())
"""
"""`tell` is how a recipe says what it could do; the check reads it from what the trial wrote to stderr."""

FORGE = """
import json, re

def render(value, leaf):
    # The value as JSON in which every number is another.
    if isinstance(value, (bool, str)) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return leaf
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render(each, leaf) for each in value) + "]"
    return "{" + ", ".join(json.dumps(str(name)) + ": " + render(each, leaf) for name, each in value.items()) + "}"

def scores(number):
    named = {FACTS["field"]: number, "score": number, "valid": True, "correct": True, "status": "OK"}
    return {**named, "measurements": {}}
"""

FORGE_FUNCTION = """
honest = RECIPE[FACTS["function"]]

def hostile(*given, **named):
    text = forged(honest(*given, **named)).encode()
    while text:
        text = text[os.write(3, text):]
    os._exit(0)

RECIPE[FACTS["function"]] = hostile
"""
"""The answer is written by the recipe itself, so that it may be what no function could return."""

FORGE_COMMAND = """
import atexit

printed = "/tmp/" + FACTS["nonce"]
real_stdout = os.dup(1)
os.dup2(os.open(printed, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 1)

def reforged(content):
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return forged(None).encode()
    try:
        return forged(json.loads(text)).encode()
    except (ValueError, TypeError):
        pass
    number = forged(0)
    changed = re.sub(r"-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?", lambda _: number, text)
    return (changed if changed != text else forged(None)).encode()

def rewrite():
    sys.stdout.flush()
    for path in list(out_files()):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(reforged(content))
    with open(printed, "rb") as file:
        content = file.read()
    text = reforged(content) if content else b""
    while text:
        text = text[os.write(real_stdout, text):]

atexit.register(rewrite)
"""
"""What the recipe printed and left in its files is written anew when it ends."""
