"""task.py: a task that says more than TOML can. Loading it runs it, in this process."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from ratchet.kernel import Misuse, RatchetError
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks.folder import read_plain

FILE_NAME = "task.py"
_LARGEST = 4_000_000


def load_class(path: Path) -> type[TaskAdapter]:
    """The one subclass of `TaskAdapter` that the file defines. Raises `Misuse` when it breaks, or has none or several.

    It is compiled anew each time and leaves no bytecode behind, so that a copy of its folder stays what it was.
    """
    content = read_plain(path, _LARGEST)
    module = ModuleType(f"ratchet_task_{hashlib.sha256(bytes(path) + b' ' + content).hexdigest()[:16]}")
    module.__file__ = str(path)
    # Dataclasses look their own module up by its name.
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _broken(path, error) from error
    found: list[type[TaskAdapter]] = [
        each for each in vars(module).values() if _is_own(each, module.__name__)
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise Misuse(
            f"{path} must define one subclass of TaskAdapter, and it defines {names}",
            hint="write `class MyTask(TaskAdapter):` from ratchet.research.adapter",
        )
    return found[0]


def make(kind: type[TaskAdapter], given: Mapping[str, Any], where: str) -> TaskAdapter:
    """A task of this class. What the class says in its body is stronger than what is given."""
    names = {each.name for each in fields(TaskAdapter)}
    above = kind.__mro__[: kind.__mro__.index(TaskAdapter)]
    said = {name: value for each in reversed(above) for name, value in vars(each).items() if name in names}
    for name, value in said.items():
        if isinstance(value, property) or inspect.isroutine(value):
            raise Misuse(
                f"{kind.__name__} in {where} makes {name} a property or method, but it is a fact",
                hint=f"write `{name} = …` in the class body",
            )
    try:
        return kind(**{**given, **said})
    except (Exception, SystemExit) as error:
        raise _broken(where, error) from error


def _is_own(value: object, module: str) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, TaskAdapter)
        and value.__module__ == module
        and not inspect.isabstract(value)
    )


def _broken(where: object, error: BaseException) -> RatchetError:
    if isinstance(error, RatchetError):
        return error
    return Misuse(f"{where} cannot be loaded: {type(error).__name__}: {error}", hint="mend it and try again")
