"""What a tool may ask to have installed: packages by name, and nothing that changes where they come from."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ratchet.tools.call import ToolFailed

_MOST = 100


def read_requirements(given: Iterable[str]) -> tuple[str, ...]:
    """The requirements in one spelling and one order. Raises `ToolFailed` for what is not a plain requirement."""
    read = sorted({_read(each) for each in given})
    if len(read) > _MOST:
        raise ToolFailed(f"a tool cannot have {len(read)} requirements, at most {_MOST}", final=True)
    return tuple(read)


def _read(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise _refused(text, reason) from None
    if requirement.url is not None:
        raise _refused(text, "it names where the package is to come from")
    requirement.name = canonicalize_name(requirement.name)
    return str(requirement)


def _refused(text: str, reason: str) -> ToolFailed:
    return ToolFailed(
        f"the requirement {text[:200]!r} cannot be installed: {reason}",
        hint="name a package and perhaps its versions, such as 'rich>=13,<15'; indexes are set by PIP_INDEX_URL",
        final=True,
    )
