"""Which checks CI reports for every change, read off the names of its jobs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from ratchet.projects.discovery.declared import SCRIPTS
from ratchet.projects.discovery.facts import Provider
from ratchet.projects.discovery.generated import is_untouched, runs_nothing
from ratchet.projects.discovery.provider import workflow_files
from ratchet.projects.discovery.tree import Tree, table

_MOST = 100
_MOST_FILES = 30
_LONGEST_NAME = 200
_FILTERS = ("paths", "paths-ignore", "branches-ignore", "tags", "tags-ignore")
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_NOT_JOBS = frozenset(
    {"after_script", "before_script", "cache", "default", "image", "include", "pages", "services", "spec"}
    | {"stages", "types", "variables", "workflow"}
)
# A GitLab job with one of these may be left out of a pipeline, and one that was left out reports nothing.
_SOMETIMES = ("rules", "only", "except", "trigger", "parallel")


def required_checks(tree: Tree, provider: Provider | None) -> tuple[str, ...]:
    """The names that the provider will report for a change. Jobs that may be left out are not among them."""
    names: Iterator[str] = iter(())
    if provider == "github":
        names = itertools.chain.from_iterable(
            _of_workflow(tree, path) for path in workflow_files(tree)[:_MOST_FILES]
        )
    elif provider == "gitlab":
        names = _of_gitlab(tree)
    fit = (name for name in names if 0 < len(name) <= _LONGEST_NAME and name.isprintable())
    return tuple(itertools.islice(dict.fromkeys(fit), _MOST))


def _of_workflow(tree: Tree, path: str) -> Iterator[str]:
    workflow = tree.yaml(path)
    if not _runs_always(workflow.get("on")):
        return
    ours = is_untouched(tree.text(path) or "")
    for key, job in table(workflow, "jobs").items():
        if not isinstance(job, dict) or "if" in job or (ours and _has_nothing_to_run(tree, key)):
            continue
        if "uses" in job:
            tree.note(f"the checks of the job {key!r} in {path!r} are named by another workflow")
            continue
        yield from _of_job(tree, path, key, job)


def _of_job(tree: Tree, path: str, key: str, job: dict[str, Any]) -> Iterator[str]:
    name = job.get("name")
    name = name if isinstance(name, str) and name else None
    matrix = table(job, "strategy", "matrix")
    if not matrix and "matrix" not in table(job, "strategy"):
        chosen: list[dict[str, str]] | None = [{}]
    else:
        chosen = _combinations(matrix)
    if chosen is None:
        tree.note(f"the checks of the job {key!r} in {path!r} depend on a matrix that is not plain")
        return
    for values in chosen:
        told = f" ({', '.join(values.values())})" if values else ""
        filled = f"{key}{told}" if name is None else _filled(name, values)
        if filled is None:
            tree.note(f"the name of the job {key!r} in {path!r} is only known when it runs")
            return
        yield filled + (told if name is not None and values and "${{" not in name else "")


def _combinations(matrix: dict[str, Any]) -> list[dict[str, str]] | None:
    """Every choice of values; nothing for a matrix that does more than list plain ones."""
    lists = matrix.values()
    if not matrix or not all(
        isinstance(each, list) and all(isinstance(v, str) for v in each) for each in lists
    ):
        return None
    if "include" in matrix or "exclude" in matrix:
        return None
    products = itertools.islice(itertools.product(*lists), _MOST)
    return [dict(zip(matrix, values, strict=True)) for values in products]


def _filled(name: str, values: dict[str, str]) -> str | None:
    """A name with the values of a matrix put in; nothing if it has other expressions."""
    if len(name) > _LONGEST_NAME:
        return None
    known = {f"matrix.{key}": value for key, value in values.items()}
    if any(each not in known for each in _EXPRESSION.findall(name)):
        return None
    return _EXPRESSION.sub(lambda found: known[found[1]], name)


def _runs_always(on: Any) -> bool:
    """Whether a workflow runs for each push to any branch, or for each pull request."""
    if isinstance(on, str):
        return on in ("push", "pull_request")
    if isinstance(on, list):
        return "push" in on or "pull_request" in on
    events = on if isinstance(on, dict) else {}
    push, request = (events.get(name, None) for name in ("push", "pull_request"))
    return ("push" in events and _takes_all(push, "branches")) or (
        "pull_request" in events and _takes_all(request, "types")
    )


def _takes_all(event: Any, filter_key: str) -> bool:
    """A branch filter of a pull request is about where it goes, which is the base: that one is let through."""
    said = event if isinstance(event, dict) else {}
    if any(key in said for key in _FILTERS):
        return False
    if filter_key not in said:
        return True
    wanted = said[filter_key]
    return wanted in ("**", ["**"]) or (
        isinstance(wanted, list) and ("**" in wanted or "synchronize" in wanted)
    )


def _of_gitlab(tree: Tree) -> Iterator[str]:
    path = ".gitlab-ci.yml"
    ours = is_untouched(tree.text(path) or "")
    for name, job in tree.yaml(path).items():
        if name in _NOT_JOBS or name.startswith(".") or not isinstance(job, dict):
            continue
        if not any(key in job for key in ("script", "extends", "run")):
            continue
        if any(key in job for key in _SOMETIMES) or job.get("when") in ("manual", "delayed", "on_failure"):
            continue
        if job.get("allow_failure") == "true" or (ours and _has_nothing_to_run(tree, name)):
            continue
        yield name


def _has_nothing_to_run(tree: Tree, job: str) -> bool:
    return runs_nothing(tree.text(f"{SCRIPTS}/{job}.sh") or "")
