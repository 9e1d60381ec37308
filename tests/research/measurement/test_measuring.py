"""What a measurement consists of, for functions and for commands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Program, TaskAdapter
from ratchet.sandbox import Layer
from tests.research.measurement.conftest import (
    COMMAND,
    NODE,
    PRINT,
    PYTHON,
    SCORE_STDOUT,
    MakeBench,
    scored_by,
)

EVALUATE = scored_by(argv=(*PYTHON, "evaluate.py"))
ECHO = """
    def score(asked):
        return {"score": 1.0, "measurements": {"seed": asked["seed"], "held_out": int(asked["held_out"]),
                "processes": len(asked["trials"]), "answers": sum(each["answer"] for each in asked["trials"])}}
"""


def test_a_function_is_scored_by_a_function(make_bench: MakeBench) -> None:
    bench = make_bench()
    better = bench.change(recipe="def solve(asked):\n    return 2.5\n")
    measured = bench.measure(better, seed=7)
    assert (measured.commit, measured.seed, measured.held_out, measured.score) == (better, 7, False, 2.5)
    assert measured.wall_ms > 0
    assert bench.measure().score == 1.5


def test_a_command_is_scored_by_a_command(make_bench: MakeBench) -> None:
    evaluate = """
        import json, sys
        print(json.dumps({"score": float(open(json.load(sys.stdin)["trial"]["stdout"]).read())}))
    """
    bench = make_bench(PRINT, evaluate, trial=COMMAND, evaluator=EVALUATE)
    assert bench.measure(bench.change(recipe="print(4)")).score == 4.0


def test_the_facts_tell_how_it_went(make_bench: MakeBench) -> None:
    facts = make_bench().measure().facts
    assert json.loads(json.dumps(facts)) == facts | {
        "trials": [facts["trials"][0] | {"layers": list(facts["trials"][0]["layers"])}],
        "evaluator": facts["evaluator"] | {"layers": list(facts["evaluator"]["layers"])},
    }
    assert (facts["trials"][0]["exit_code"], facts["trials"][0]["stdout"]) == (0, "1.5")
    assert Layer.SECCOMP in facts["evaluator"]["layers"]
    assert facts["trials"][0]["peak_bytes"] > 0


def test_several_processes_with_seeds_of_their_own_make_one_measurement(make_bench: MakeBench) -> None:
    recipe = "def solve(asked):\n    return asked['seed']\n"
    bench = make_bench(recipe, ECHO, processes_per_measurement=3)
    measured = bench.measure(seed=2, held_out=True)
    assert measured.measurements == {"seed": 2, "held_out": 1, "processes": 3, "answers": 6 + 7 + 8}
    assert len(measured.facts["trials"]) == 3


def test_processes_of_one_measurement_leave_nothing_to_each_other(make_bench: MakeBench) -> None:
    recipe = """
        import pathlib, sys
        places = [pathlib.Path(place, "left") for place in (sys.argv[2], "/tmp", ".")]
        print(sum(place.exists() for place in places))
        for place in places:
            place.write_text("x")
    """
    evaluate = (
        "def score(asked):\n    return {'score': sum(int(open(t['stdout']).read()) for t in asked['trials'])}"
    )
    bench = make_bench(recipe, evaluate, trial=COMMAND, processes_per_measurement=3, output_dirs=("results",))
    assert bench.measure().score == 0.0


def test_the_trial_gets_seed_and_question_and_never_learns_the_split(make_bench: MakeBench) -> None:
    evaluate = """
        def prepare(asked):
            return {"numbers": [asked["seed"], 100 * asked["held_out"]]}
        def score(asked):
            seen = asked["trial"]["answer"]
            assert seen == {"seed": asked["seed"], "question": asked["question"]}, seen
            return {"score": sum(seen["question"]["numbers"])}
    """
    bench = make_bench(
        "def solve(asked):\n    return asked\n", evaluate, evaluator=scored_by(prepare="prepare")
    )
    assert bench.measure(seed=3).score == 3.0
    assert bench.measure(seed=3, held_out=True).score == 103.0


def test_a_command_gets_seed_and_question_on_stdin(make_bench: MakeBench) -> None:
    evaluate = "def prepare(asked):\n    return 'why'\n" + SCORE_STDOUT
    recipe = """
        import json, os, sys
        assert json.load(sys.stdin) == {"seed": 5, "question": "why"}
        assert (os.environ["RATCHET_SEED"], sys.argv[3]) == ("5", "5")
        print(1)
    """
    bench = make_bench(recipe, evaluate, trial=COMMAND, evaluator=scored_by(prepare="prepare"))
    assert bench.measure(seed=5).score == 1.0


@pytest.mark.parametrize("program", [NODE, COMMAND])
def test_inputs_lie_at_one_path_whatever_the_split(make_bench: MakeBench, program: Program) -> None:
    recipe = """
        import os
        def solve(asked):
            path = os.environ["RATCHET_INPUTS"]
            return [path, os.listdir(path), open(path + "/number").read(), sorted(os.environ)]
        if __name__ == "__main__":
            import json
            print(json.dumps(solve(None)))
    """
    evaluate = """
        import json, os
        def score(asked):
            trial = asked["trial"]
            seen = trial["answer"] if "answer" in trial else json.load(open(trial["stdout"]))
            assert seen[:2] == ["/inputs", ["number"]], seen
            assert open(os.environ["RATCHET_INPUTS"] + "/number").read() == seen[2]
            return {"score": float(seen[2])}
    """
    files = {"shown/number": "1", "secret/number": "2"}
    bench = make_bench(recipe, evaluate, trial=program, files=files, inputs="shown", held_out_inputs="secret")
    assert bench.measure().score == 1.0
    assert bench.measure(held_out=True).score == 2.0


def test_without_a_trial_the_evaluator_reads_the_recipe(make_bench: MakeBench) -> None:
    evaluate = """
        import pathlib
        def score(asked):
            assert (asked["trial"], asked["trials"]) == (None, [])
            return {"score": len(pathlib.Path(asked["candidate"], "recipe.py").read_text())}
    """
    bench = make_bench("x = 1\n", evaluate, trial=None)
    assert bench.measure(bench.change(recipe="x = 10")).score == 6.0


def test_the_candidate_is_shown_to_an_evaluator_only_if_the_task_says_so(make_bench: MakeBench) -> None:
    evaluate = """
        import os
        def score(asked):
            return {"score": 0.0 if asked["candidate"] is None else len(os.listdir(asked["candidate"]))}
    """
    assert make_bench(evaluate=evaluate).measure().score == 0.0
    assert make_bench(evaluate=evaluate, evaluator=scored_by(reads_candidate=True)).measure().score == 1.0


def test_a_function_can_import_the_other_files_of_its_recipe(make_bench: MakeBench) -> None:
    recipe = "import numbers_of_ours\ndef solve(asked):\n    return numbers_of_ours.BEST\n"
    files = {"lib/solving.py": recipe, "lib/numbers_of_ours.py": "BEST = 3"}
    bench = make_bench(trial=replace(NODE, file="lib/solving.py"), files=files, recipe_paths=("lib",))
    assert bench.measure().score == 3.0
    assert bench.measure(bench.change(lib__numbers_of_ours="BEST = 4")).score == 4.0


def test_an_evaluator_has_modules_and_data_of_its_own(make_bench: MakeBench) -> None:
    evaluate = """
        import pathlib
        import exact
        def score(asked):
            return {"score": exact.SCALE * float(pathlib.Path(__file__).with_name("data.txt").read_text())}
    """
    files = {"evaluator/exact.py": "SCALE = 2", "evaluator/data.txt": "21"}
    assert make_bench(evaluate=evaluate, files=files).measure().score == 42.0


def test_stage_files_come_from_the_task_whatever_the_commit_holds(make_bench: MakeBench) -> None:
    script = 'exec "$1" -I -S recipe.py\n'
    program = Program(argv=("bash", "run_trial.sh", "{python}"), bounds=COMMAND.bounds)
    bench = make_bench(
        PRINT,
        SCORE_STDOUT,
        trial=program,
        files={"trial.sh": script},
        stage_files={"trial.sh": "run_trial.sh"},
    )
    forged = bench.repository.commit_files({"run_trial.sh": b"echo 99\n"}, parent=bench.base, message="forge")
    assert bench.measure(forged).score == 1.5
    (bench.task.root / "trial.sh").write_text("echo 98\n")
    assert bench.measure(forged).score == 1.5


def test_the_environment_of_the_task_reaches_both_programs(make_bench: MakeBench) -> None:
    recipe = "import os\ndef solve(asked):\n    return os.environ['LEVEL']\n"
    evaluate = """
        import os
        def score(asked):
            return {"score": float(asked["trial"]["answer"] + os.environ["LEVEL"])}
    """
    assert make_bench(recipe, evaluate, environment={"LEVEL": "4"}).measure().score == 44.0


def test_a_task_of_its_own_class_reads_the_answer_itself(make_bench: MakeBench) -> None:
    class Doubling(TaskAdapter):
        def classify(self, answer):  # type: ignore[no-untyped-def]
            return {"score": 2 * answer["score"]} if answer["score"] < 5 else None

    bench = make_bench(kind=Doubling)
    assert bench.measure().score == 3.0
    failed = bench.fail(bench.change(recipe="def solve(asked):\n    return 7"))
    assert failed.status is TrialStatus.CRASH
    assert "NoneType, not as an object" in failed.reason


def test_scores_are_read_from_the_field_that_the_task_names(make_bench: MakeBench) -> None:
    bench = make_bench(evaluate="def score(asked):\n    return {'bpb': 0.5}", score_field="bpb")
    assert bench.measure().score == 0.5
