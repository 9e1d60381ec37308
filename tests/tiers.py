"""Two tiers of tests: the gate, which every change passes, and the soak, which is everything.

A test is left to the soak by `@pytest.mark.soak`, or because it is the PostgreSQL twin of a test above the runtime or
of one marked `postgresql_in_soak`.
The gate is `pytest --gate`; without it every test runs. `--area agents` runs the tests of one area only, and
`--areas` ends the run with a table of all of them. With `--seed` or `--seeds` only those seeds of the fault simulation
run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest

# Below the flows everything runs on both databases in the gate too.
BOTH_DATABASES = {"ledger", "runtime", "loop"}
# Tests of the faces are of the flow that they are named after.
FACES = {"cli", "server", "docs"}
FLOWS = {
    "agent": "agents",
    "research": "research",
    "workflow": "workflows",
    "tool": "tools",
    "protocol": "protocols",
}

# What a test takes that runs seeds: the first of them.
SEEDED = "first_seed"


@dataclass
class Tally:
    cases: int = 0
    seconds: float = 0.0
    failed: int = 0


def names_seeds(config: pytest.Config) -> bool:
    return config.getoption("--seed") is not None or config.getoption("--seeds") is not None


def area_of(nodeid: str) -> str:
    """The directory below `tests`; for a test of a face, the flow in the name of its file."""
    parts = nodeid.partition("::")[0].split("/")
    directory = parts[1] if len(parts) > 2 else "whole"
    if directory in FACES:
        flows = [area for word, area in FLOWS.items() if word in parts[-1]]
        return flows[0] if flows else directory
    return directory


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--gate", action="store_true", help="leave out what only the soak runs")
    group.addoption("--area", help="only the tests of this area")
    group.addoption("--areas", action="store_true", help="end with a table: area, cases, seconds, failed")
    group.addoption("--seed", type=int, help="the first seed of the fault simulation")
    group.addoption("--seeds", type=int, help="how many seeds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = {item: _is_wanted(config, item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not wanted[item]])
    items[:] = [item for item in items if wanted[item]]


def _is_wanted(config: pytest.Config, item: pytest.Item) -> bool:
    area = config.getoption("--area")
    if area and area_of(item.nodeid) != area:
        return False
    if names_seeds(config):
        return SEEDED in getattr(item, "fixturenames", ())
    return not (config.getoption("--gate") and _is_soak(item))


def _is_soak(item: pytest.Item) -> bool:
    if item.get_closest_marker("soak") is not None:
        return True
    area = item.path.relative_to(item.config.rootpath).parts[1]
    is_cheap = area in BOTH_DATABASES and item.get_closest_marker("postgresql_in_soak") is None
    return is_on_postgresql(item) and not is_cheap


def is_on_postgresql(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and any(
        each == "postgresql" or (isinstance(each, tuple) and "postgresql" in each)
        for each in call.params.values()
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--areas"):
        return
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            tally = tallies[area_of(report.nodeid)]
            tally.cases += report.when == "call" or outcome == "skipped"
            tally.failed += outcome in ("failed", "error")
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                tallies[area_of(report.nodeid)].seconds += report.duration
    terminalreporter.section("areas")
    terminalreporter.write_line(f"{'area':14}{'cases':>8}{'seconds':>10}{'failed':>8}")
    for name, tally in sorted(tallies.items(), key=lambda each: -each[1].seconds):
        terminalreporter.write_line(f"{name:14}{tally.cases:8}{tally.seconds:10.0f}{tally.failed:8}")
