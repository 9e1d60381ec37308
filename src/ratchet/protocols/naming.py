"""Names of protocols, such as `0007-add-login`: each is also a branch, a directory and a part of addresses."""

from __future__ import annotations

import re
import unicodedata

from ratchet.kernel import Misuse, is_name

HIGHEST_NUMBER = 9999
_NUMBERED = re.compile(r"([0-9]{4})-[a-z0-9]", re.ASCII)
_LONGEST_SLUG = 40
_HINT = "use small letters, digits, dashes, dots and underscores, 64 of them at most, such as 0007-add-login"


def slug_of(description: str) -> str:
    """A short text that says what a protocol is about, made of the first words of its description."""
    plain = unicodedata.normalize("NFKD", description).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word[:_LONGEST_SLUG]
        if len(longer) > _LONGEST_SLUG:
            break
        slug = longer
    return slug or "task"


def numbered(number: int, slug: str) -> str:
    """The name with that number. Raises `Misuse` when there are no numbers left, or for a slug that cannot be used."""
    if not 0 < number <= HIGHEST_NUMBER:
        raise Misuse(
            f"{number} cannot be the number of a protocol: the highest is {HIGHEST_NUMBER}",
            hint="give the protocol a name of your own, or delete branches whose numbers are too high",
        )
    name = f"{number:04d}-{slug}"
    check_name(name)
    return name


def number_of(name: str) -> int | None:
    """The NNNN that a name or a branch begins with; nothing if it does not."""
    found = _NUMBERED.match(name)
    return None if found is None else int(found[1])


def check_name(name: str) -> None:
    """Raise `Misuse` unless `name` is safe as a branch, a directory and a part of an address."""
    if not isinstance(name, str) or not is_name(name) or name.endswith(".lock"):
        shown = repr(name if len(repr(name)) <= 80 else f"{name[:70]}…")
        raise Misuse(f"a protocol cannot be called {shown}", hint=_HINT)


def require_number(name: str) -> int:
    """The number of a name that must have one, as that of whatever is planned. Raises `Misuse`."""
    check_name(name)
    number = number_of(name)
    if number is None:
        raise Misuse(
            f"the protocol {name!r} has no number",
            hint="name it NNNN-task, such as 0007-add-login, or leave the name out to be given one",
        )
    return number
