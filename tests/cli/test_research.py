"""`ratchet research …`: real runs of a small task with the search engine, real signals, both databases."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, find_research, get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import in_flight, latest_trials
from tests.cli.conftest import Ratchet
from tests.cli.program import Ended, Program
from tests.research.hill import RECIPE, write_hill
from tests.research.views.made_up import make_run, try_out
from tests.waiting import eventually

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]
# So slow that a run can be caught half-way.
SLOW = RECIPE.replace("def climb", "import time\n\n\ndef climb").replace(
    "    return", "    time.sleep(0.05)\n    return"
)
VIEWS = ("leaderboard", "tree", "knowledge", "activity", "misses", "yield", "cost", "lessons")


@pytest.fixture
def hill(tmp_path: Path) -> Path:
    return write_hill(tmp_path / "hill")


@pytest.fixture
def slow_hill(tmp_path: Path) -> Path:
    return write_hill(tmp_path / "hill", recipe=SLOW)


def climb(ratchet: Ratchet | Program, hill: Path, *options: str, trials: int = 6) -> Ended:
    return ratchet("research", "run", str(hill), "--engine", "search", "--trials", str(trials), *options)


def tried(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return get_standing(tx, find_research(tx, "hill")).trials


def begin(program: Program, ledger: Ledger, hill: Path, ending: Keep, *options: str) -> subprocess.Popen[str]:
    """A run of sixty trials in a process of its own that has made a few of them."""
    process = ending(
        program.start("research", "run", str(hill), "--engine", "search", "--trials", "60", *options)
    )
    eventually(lambda: _has_begun(ledger))
    return process


def _has_begun(ledger: Ledger) -> bool:
    with ledger.read() as tx:
        return any(trial.number >= 5 and trial.status for trial in latest_trials(tx, 1))


def check_whole(ledger: Ledger, trials: int) -> None:
    """Every trial that was asked for is there once, and has ended."""
    with ledger.read() as tx:
        run_id = find_research(tx, "hill")
        assert get_run(tx, run_id).status is RunStatus.COMPLETED
        assert in_flight(tx, run_id) == []
        assert [each.number for each in latest_trials(tx, run_id, limit=500)] == [*range(trials, -1, -1)]


def descendants(pid: int) -> set[tuple[int, str]]:
    """The processes below `pid`, each with the moment it began, by which it is known again."""
    below: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        below.setdefault(int(facts[1]), []).append((int(path.parent.name), facts[19]))
    found: set[tuple[int, str]] = set()
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += [child for child, _ in children]
    return found


def living(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    left = set()
    for pid, began in processes:
        try:
            facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if facts[19] == began and facts[0] != "Z":
            left.add((pid, began))
    return left


@pytest.mark.soak
def test_a_run_in_the_foreground_ends_with_where_it_stands(ratchet: Ratchet, hill: Path) -> None:
    done = climb(ratchet, hill, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["trials"], sum(told["by_status"].values())) == (6, 6)
    assert told["status"] == "completed"
    assert (told["baseline"]["exp_id"], round(told["baseline"]["score"], 6)) == ("000", 0.55)
    assert told["best"]["score"] > told["baseline"]["score"]
    assert told["best"]["exp_id"] == f"{int(told['best']['exp_id']):03}"
    assert ratchet("research", "status", "hill", "--json").json == told
    assert ratchet("research", "status", str(told["run"]), "--json").json == told


@pytest.mark.soak
def test_a_person_is_told_of_keeps_and_of_the_end(ratchet: Ratchet, hill: Path) -> None:
    done = climb(ratchet, hill, "--name", "up", "--seed", "3")
    assert done.code == 0, done.err
    first, *_, last = done.out.splitlines()
    assert first == "000 baseline 0.55"
    assert "keep" in done.out
    assert last.startswith("Run 1 is completed after 6 trials: best ")
    assert "ratchet research report 1" in done.err
    shown = ratchet("research", "status", "up").out
    assert "6 trials" in shown
    assert "higher is better" in shown


def test_every_option_reaches_the_run(ratchet: Ratchet, ledger: Ledger, hill: Path) -> None:
    options = (
        *("--name", "mine", "--model", "m", "--specialists", "generalist", "--hours", "2"),
        *("--hours-without-keep", "1.5", "--tokens", "5000000", "--cost-usd", "2.5"),
        *("--keep-policy", "strict", "--no-lineage", "--parallel", "3", "--seed", "9"),
        *("--baseline-score", "0.25", "--simulated", "--detach"),
    )
    done = climb(ratchet, hill, *options)
    assert (done.code, done.out) == (0, "Run 1 waits for a worker.\n")
    with ledger.read() as tx:
        run, standing = get_run(tx, 1), get_standing(tx, 1)
    assert (run.name, run.simulated, standing.keep_policy) == ("mine", True, "strict")
    wanted = {
        "task": str(hill),
        "engine": "search",
        "model": "m",
        "specialists": ["generalist"],
        "trials": 6,
        "hours": 2.0,
        "hours_without_keep": 1.5,
        "keep_policy": "strict",
        "lineage": False,
        "parallel": 3,
        "seed": 9,
        "baseline_score": 0.25,
        "columns": ["x", "y"],
    }
    assert {name: run.spec[name] for name in wanted} == wanted


@pytest.mark.soak
def test_a_run_that_was_left_to_a_worker_can_be_carried_here(
    ratchet: Ratchet, ledger: Ledger, hill: Path
) -> None:
    assert climb(ratchet, hill, "--detach", "--json").json == {"run": 1}
    assert ratchet("research", "status", "1", "--json").json["status"] == "pending"
    done = ratchet("research", "resume", "1", "--json")
    assert (done.code, done.json["trials"]) == (0, 6)
    check_whole(ledger, 6)


@pytest.mark.soak
def test_a_run_killed_half_way_is_resumed_to_exactly_the_trials_asked_for(
    program: Program, ledger: Ledger, slow_hill: Path, ending: Keep
) -> None:
    process = begin(program, ledger, slow_hill, ending)
    below = descendants(process.pid)
    process.kill()
    process.communicate()
    eventually(lambda: not living(below))
    assert 5 <= tried(ledger) < 60
    with ledger.read() as tx:
        assert get_run(tx, 1).status is RunStatus.RUNNING
    resumed = program("research", "resume", "hill", "--json", seconds=120)
    assert resumed.code == 0, resumed.err
    assert (resumed.json["trials"], sum(resumed.json["by_status"].values())) == (60, 60)
    check_whole(ledger, 60)


@pytest.mark.soak
def test_ctrl_c_pauses_the_run_and_leaves_nothing_running(
    program: Program, ratchet: Ratchet, ledger: Ledger, slow_hill: Path, ending: Keep
) -> None:
    process = begin(program, ledger, slow_hill, ending, "--json")
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert living(below) == set()
    assert Ended(130, out, err).json["status"] == "paused"
    assert ratchet("processes", "--json").json == []
    made = tried(ledger)
    assert 5 <= made < 60
    resumed = program("research", "resume", "1", seconds=120)
    assert resumed.code == 0, resumed.err
    check_whole(ledger, 60)


@pytest.mark.soak
def test_a_run_elsewhere_is_watched_until_it_stands_still(
    program: Program, ratchet: Ratchet, ledger: Ledger, slow_hill: Path, ending: Keep
) -> None:
    process = begin(program, ledger, slow_hill, ending)
    watching = ending(program.start("research", "status", "hill", "--watch", "--json"))
    process.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=60)
    assert watching.returncode == 0, err
    assert Ended(0, out, err).json["status"] == "paused"


@pytest.mark.soak
@pytest.mark.parametrize(("action", "status"), [("pause", "paused"), ("stop", "cancelled")])
def test_a_run_elsewhere_is_paused_and_stopped(
    program: Program,
    ratchet: Ratchet,
    ledger: Ledger,
    slow_hill: Path,
    ending: Keep,
    action: str,
    status: str,
) -> None:
    process = begin(program, ledger, slow_hill, ending)
    done = ratchet("research", action, "hill", "--json")
    assert done.code == 0, done.err
    assert (done.json["id"], done.json["status"]) == (1, status)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Run 1 is {status}" in out
    assert tried(ledger) < 60


def test_what_has_ended_cannot_be_steered(ratchet: Ratchet, ledger: Ledger, hill: Path) -> None:
    climb(ratchet, hill, "--detach")
    assert ratchet("research", "pause", "1").code == 0
    assert ratchet("research", "stop", "1").code == 0
    resumed = ratchet("research", "resume", "1")
    assert resumed.code == 1
    assert "run 1 is cancelled" in resumed.err
    assert "ratchet research run" in resumed.err
    assert ratchet("research", "pause", "1").code == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("square_packing", "--trials", "1"), "there is no task 'square_packing'"),
        (("./nowhere", "--trials", "1"), "there is no directory './nowhere'"),
        (("HILL",), "nothing would ever stop this run"),
        (("HILL", "--trials", "0"), "--trials"),
        (("HILL", "--hours", "nan"), "nan is not a number above 0"),
        (("HILL", "--hours", "inf"), "inf is not a number above 0"),
        (("HILL", "--trials", "1", "--parallel", "1001"), "--parallel"),
        (("HILL", "--trials", "1", "--keep-policy", "lucky"), "--keep-policy"),
        (("HILL", "--trials", "1", "--name", "12"), "cannot be called '12'"),
        (("HILL", "--trials", "1", "--engine", "nobody"), "there is no engine 'nobody'"),
        (("HILL", "--trials", "1", "--specialists", "a,b"), "no specialist 'a'"),
        (("HILL", "--trials", "1", "--variant", "other"), "other"),
        (("HILL", "--trials", "1", "--seed", "-1"), "--seed"),
        (("HILL", "--trials", "1", "--baseline-score", "nan"), "baseline score of nan"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_can_never_work_is_refused_before_anything_is_recorded(
    ratchet: Ratchet, ledger: Ledger, hill: Path, options: tuple[str, ...], told: str
) -> None:
    done = ratchet("research", "run", *(str(hill) if each == "HILL" else each for each in options))
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert ratchet("research", "list", "--json").json == []


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_fails_says_why_and_exits_1(ratchet: Ratchet, tmp_path: Path) -> None:
    broken = write_hill(
        tmp_path / "hill", recipe=RECIPE.replace("return", "raise ValueError('steep')\n    return")
    )
    done = climb(ratchet, broken)
    assert done.code == 1
    assert "steep" in done.out


def test_runs_are_listed_newest_first(ratchet: Ratchet, ledger: Ledger) -> None:
    assert "ratchet research run" in ratchet("research", "list").err
    made = [make_run(ledger) for _ in range(3)]
    assert [run["id"] for run in ratchet("research", "list", "--json").json] == made[::-1]
    page = ratchet("research", "list", "--json", "--limit", "1", "--before", str(made[2])).json
    assert [run["id"] for run in page] == [made[1]]
    assert len(ratchet("research", "list").out.splitlines()) == 4


@pytest.mark.soak
def test_every_view_of_a_run_is_shown_and_printed(
    ratchet: Ratchet, ledger: Ledger, hill: Path, home: Path
) -> None:
    best = climb(ratchet, hill, "--json").json["best"]["exp_id"]
    with ledger.write() as tx:
        add_lesson(tx, 1, "search", "go down to go up", trial=1)

    shown = {name: ratchet("research", name, "hill") for name in VIEWS}
    assert {name: each.code for name, each in shown.items()} == dict.fromkeys(VIEWS, 0)
    assert f"| {best} | " in shown["leaderboard"].out
    assert "| exp | height | x | y | Δ |" in shown["leaderboard"].out
    assert "← BEST" in shown["tree"].out
    assert "go down to go up" in shown["lessons"].out
    assert "go down to go up" in shown["knowledge"].out
    assert len(shown["activity"].out.splitlines()) == 2 + 7
    assert "| search | " in shown["yield"].out
    assert "$0.00" in shown["cost"].out

    printed = {name: ratchet("research", name, "hill", "--json").json for name in VIEWS}
    assert printed["leaderboard"][0]["exp_id"] == best
    assert printed["leaderboard"][0]["measurements"].keys() == {"x", "y"}
    assert printed["tree"]["nodes"][0]["exp_id"] == "000"
    assert [each["exp_id"] for each in printed["activity"]] == [f"{number:03}" for number in range(6, -1, -1)]
    assert printed["lessons"][0]["text"] == "go down to go up"
    assert printed["yield"][0]["trials"] == 6
    assert ratchet("research", "tree", "hill", "exp_000", "--json").json["focus"] == 0

    _check_trial(ratchet, best)
    _check_report(ratchet, home)


def _check_trial(ratchet: Ratchet, best: str) -> None:
    trial = ratchet("research", "trial", "hill", best, "--json").json
    assert (trial["exp_id"], trial["status"]) == (best, "keep")
    assert trial["certificate_content"]["commit"] == trial["commit"]
    assert trial["certificate_problems"] == []
    assert trial["started_at"].endswith("Z")
    shown = ratchet("research", "trial", "hill", best)
    assert "certificate" in shown.out
    assert "does not hold" not in shown.err
    patch = ratchet("research", "trial", "hill", best, "--diff").out
    assert patch.startswith("diff --git a/recipe.py b/recipe.py")
    assert ratchet("research", "trial", "hill", best, "--diff", "--json").json["diff"] == patch
    assert ratchet("research", "trial", "hill", "000", "--diff").out == ""


def _check_report(ratchet: Ratchet, home: Path) -> None:
    written = ratchet("research", "report", "hill", "--json").json["path"]
    assert written == str(home / "research" / "1" / "report.html")
    page = Path(written).read_text()
    assert "What the best changed" in page
    assert "Improvement certificate" in page
    elsewhere = home / "new" / "page.html"
    assert ratchet("research", "report", "hill", "--out", str(elsewhere)).code == 0
    assert elsewhere.read_text().startswith("<!DOCTYPE html>")
    assert [each.name for each in elsewhere.parent.iterdir()] == ["page.html"]
    refused = ratchet("research", "report", "hill", "--out", str(elsewhere / "below.html"))
    assert refused.code == 2
    assert "cannot be written" in refused.err


def test_a_trial_of_hostile_words_is_shown_harmlessly(ratchet: Ratchet, ledger: Ledger) -> None:
    run_id = str(make_run(ledger))
    words = "\x1b]0;owned\x07 <b>bold</b> | cell\nsecond line"
    try_out(ledger, int(run_id), "crash", hypothesis=words, reason=words, parent=None)
    for command in (("trial", run_id, "0"), *((name, run_id) for name in VIEWS), ("status", run_id)):
        done = ratchet("research", *command)
        assert done.code == 0, done.err
        assert "\x1b" not in done.out
        assert "\x07" not in done.out
    assert ratchet("research", "trial", run_id, "0", "--diff").code == 1


@pytest.mark.parametrize("command", ["status", "pause", "stop", "resume", "report", *VIEWS])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_run_that_is_not_there_is_named(ratchet: Ratchet, ledger: Ledger, command: str) -> None:
    for run in ("7", "nobody", "9" * 5000, "\udcff"):
        done = ratchet("research", command, run)
        assert (done.code, done.out) == (1, ""), done.err
        assert "does not exist" in done.err


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_trial_that_is_not_there_is_named(ratchet: Ratchet, ledger: Ledger) -> None:
    run_id = str(make_run(ledger))
    assert "trial 075 of run 1 does not exist" in ratchet("research", "trial", run_id, "75").err
    wrong: Any = ratchet("research", "trial", run_id, "best")
    assert wrong.code == 2
    assert "ids look like 075" in wrong.err


@pytest.mark.parametrize("command", ["status", "pause", "leaderboard"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.no_ledger
def test_looking_makes_no_ledger(ratchet: Ratchet, home: Path, command: str) -> None:
    done = ratchet("research", command, "1")
    assert done.code == 2
    assert "ratchet init" in done.err
    assert not home.exists()
