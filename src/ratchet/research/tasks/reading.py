"""A task from its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks import code
from ratchet.research.tasks.checking import check_task
from ratchet.research.tasks.facts import facts
from ratchet.research.tasks.folder import read_plain
from ratchet.research.tasks.swarm import FILE_NAME as SWARM_NAME
from ratchet.research.tasks.swarm import read_swarm
from ratchet.research.tasks.tables import Tables, TaskFile
from ratchet.research.tasks.variants import generic_agents, varied

FILE_NAME = "task.toml"
_LARGEST = 1024 * 1024


def read_task(folder: Path, variant: str | None = None) -> TaskAdapter:
    """The task that a folder describes in task.toml, in task.py, or in both. Raises `Misuse`.

    A task.py is run in this process with the rights of whoever reads the task.
    """
    root = folder.resolve()
    has_toml, has_code = is_there(root / FILE_NAME), is_there(root / code.FILE_NAME)
    if not has_toml and not has_code:
        raise Misuse(
            f"{folder} is no task: it has neither a {FILE_NAME} nor a {code.FILE_NAME}",
            hint="`ratchet research new NAME` makes a folder that is one",
        )
    if not has_toml and variant is not None:
        raise Misuse(f"{folder} has no variant {variant!r}: variants are described in a {FILE_NAME}")
    given = _described(root, variant) if has_toml else {"name": root.name, "root": root}
    kind = code.load_class(root / code.FILE_NAME) if has_code else TaskAdapter
    task = code.make(kind, given, str(root / code.FILE_NAME))
    check_task(task)
    return task


def is_there(path: Path) -> bool:
    """Also as a link that leads nowhere: it is told of, rather than passed over."""
    return path.exists() or path.is_symlink()


def _described(root: Path, variant: str | None) -> dict[str, Any]:
    path = root / FILE_NAME
    text = _text(path)
    found = _tables(path, text)
    try:
        whole = TaskFile.model_validate(found)
    except ValidationError as error:
        # Loaded here: it knows every setting there is.
        from ratchet.research.tasks.mistakes import explain

        # Not chained: the library's own text says less.
        raise explain(error, path, text, found) from None
    merged = varied(found, variant, path)
    if variant is not None and (agents := whole.variants[variant].agents):
        merged["specialist"] = generic_agents(agents)
    swarm = read_swarm(root)
    swarm.check_names(_everybody(whole), root / SWARM_NAME)
    given = facts(Tables.model_validate(merged), root, swarm)
    # A task without a name is told so when all of it is checked.
    return {"name": "", **given, "variant": variant, "variants": tuple(whole.variants)}


def _everybody(whole: TaskFile) -> set[str]:
    """The names in all rosters: a file about all variants may name those of any."""
    names = {"generalist"}
    for each in (whole, *whole.variants.values()):
        names |= {specialist.name for specialist in each.specialist or () if specialist.name}
    for variant in whole.variants.values():
        names |= {agent["name"] for agent in generic_agents(variant.agents or 0)}
    return names


def _text(path: Path) -> str:
    try:
        return read_plain(path, _LARGEST).decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _tables(path: Path, text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise Misuse(f"{path} is not valid TOML: {error}") from None
