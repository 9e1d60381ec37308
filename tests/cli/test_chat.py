"""`ratchet chat`: said line by line from a script, and typed by a person into a terminal."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.cli.catalogue import CATALOGUE
from ratchet.cli.chat_input import ChatPlan, ChatSession
from ratchet.cli.command import Command
from ratchet.config.redaction import MASK, remember_secret
from ratchet.modelserver import ModelServer, Turn, say
from tests.cli.conftest import Ratchet
from tests.cli.program import MODULE, Ended, Program
from tests.cli.workflow_files import COUNT, step, workflow, write
from tests.debian import program
from tests.modelserver.fixtures import model_server
from tests.waiting import eventually
from tests.workflows.overseer.plans import COUNTER, SENTENCE, count_with

__all__ = ["model_server"]
ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
Chat = Callable[..., Ended]
_numbers = itertools.count(1)


@pytest.fixture
def chat(ratchet: Ratchet, monkeypatch: pytest.MonkeyPatch) -> Chat:
    """A chat in which these lines are said; no key of a model is in the environment."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def hold(*lines: str, options: tuple[str, ...] = ()) -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return ratchet("chat", *options)

    return hold


@pytest.fixture
def model(home: Path, ratchet: Ratchet, model_server: ModelServer) -> Callable[..., None]:
    """A model that gives these answers."""
    assert ratchet("init").code == 0

    def settle(*turns: Turn) -> None:
        name = f"chat-{next(_numbers)}"
        (home / "ratchet.toml").write_text(
            f'[llm]\ndefault = "local/scripted"\nretry_base_seconds = 0.01\nrepairs = 0\ntries = 1\n'
            f'[llm.endpoints.local]\nbase_url = "{model_server.openai_url(name)}"\n'
        )
        (home / "tools").mkdir(exist_ok=True)
        (home / "tools" / "tally_words.yaml").write_text(COUNTER)
        model_server.script(name, list(turns))

    return settle


@ONE_DATABASE
def test_without_a_model_a_shipped_tool_that_fits_is_asked_about_and_run(chat: Chat) -> None:
    done = chat("hi", "add 10 and 20", "", "", "", "/undo")
    assert "does not say what to do" in done.err
    assert "No model is set up" in done.err
    assert "└── basic_calculator" in done.out
    assert "a (number) [10]:" in done.out
    assert '"result": 30' in done.out
    assert "There is no plan now." in done.err
    # One turn of the script was refused.
    assert done.code == 1


@ONE_DATABASE
def test_the_end_of_the_input_ends_the_chat_and_wrong_answers_are_asked_again(chat: Chat) -> None:
    assert chat().code == 0
    done = chat("add 10 and 20", "", "ten")
    assert done.code == 1
    assert "Input a must be a number" in done.err
    assert "the input ended before the question was answered" in done.err


@ONE_DATABASE
def test_a_verb_in_the_place_of_an_answer_leaves_the_question(chat: Chat) -> None:
    done = chat("add 10 and 20", "/plan", "add 10 and 20", "/exit", "never said")
    assert done.err.count("The question is left open.") == 2
    assert done.out.count("└── basic_calculator") == 3
    assert "never said" not in done.out


@ONE_DATABASE
def test_every_command_is_a_verb_and_a_wrong_one_is_answered_with_the_nearest(chat: Chat) -> None:
    done = chat("/help", "/runs", "/agnet", '/run "open', "/run", "/chat")
    assert all(f"/{name} " in done.out for name in CATALOGUE if name != "chat")
    assert "did you mean /agent?" in done.err
    assert "hint: close the quotes" in done.err
    assert "error: there is no plan to run" in done.err
    assert "error: there is no verb /chat" in done.err
    assert "No such runs" in done.err


def test_a_chat_is_continued_and_what_was_said_is_kept_without_secrets(tmp_path: Path) -> None:
    remember_secret("hunter2hunter2")
    kept = ChatSession.open(tmp_path / "chat" / "session.json")
    kept.take(ChatPlan("first", {"workflow_id": "one"}, {"password": "hunter2hunter2"}))
    kept.take(ChatPlan("second", {"workflow_id": "two"}))
    kept.record("use hunter2hunter2", status="completed")
    text = (tmp_path / "chat" / "session.json").read_text()
    assert ("hunter2" in text, MASK in text) == (False, True)
    again = ChatSession.open(kept.path)
    assert again.plan is not None
    assert (again.plan.sentence, len(again.turns)) == ("second", 1)
    assert kept.path.stat().st_mode & 0o077 == 0


def test_a_session_that_cannot_be_read_is_said_and_a_new_one_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "session.json").write_text('{"changes": [')
    assert ChatSession.open(tmp_path / "session.json").plan is None
    assert "cannot be read" in capsys.readouterr().err


def test_a_session_keeps_no_more_than_its_last_turns(tmp_path: Path) -> None:
    kept = ChatSession(tmp_path / "session.json")
    for number in range(500):
        kept.turns.append({"at": 0, "said": str(number)})
    kept.record("last")
    assert len(kept.turns) == 200
    assert kept.turns[-1]["said"] == "last"


@pytest.mark.soak
@ONE_DATABASE
def test_a_model_plans_and_what_it_says_is_shown_as_it_says_it(
    chat: Chat, model: Callable[..., None], ratchet: Ratchet
) -> None:
    model(say(json.dumps(count_with("tally_words"))), say("There are two words."))
    done = chat(SENTENCE, "one two", "/plan", "/history")
    assert done.code == 0, done.err
    assert "text (string, a text):" in done.out
    assert "└── count  tally_words\n    └── say  llm_call" in done.out
    assert "count: done" in done.err
    assert "say > There are two words." in done.err
    assert "There are two words.\n" in done.out
    assert "word_report completed" in done.out

    later = chat("/run text='a b'", options=("--json",))
    assert json.loads(later.out)["workflow"] == "word_report"
    fresh = chat("/plan", options=("--new",))
    assert (fresh.code, "there is no plan yet" in fresh.err) == (1, True)


@pytest.mark.soak
@ONE_DATABASE
def test_a_question_of_the_run_is_answered_in_the_chat(chat: Chat, ratchet: Ratchet, tmp_path: Path) -> None:
    asking = {"step_id": "ask", "type": "approval", "prompt_template": "Go on?"}
    size = {"step_id": "size", "type": "approval", "prompt_template": "How many?", "depends_on": ["ask"]}
    size["answer_schema"] = {"type": "integer"}
    count = step("count", input_mapping={"words": "inputs.words"}, depends_on=["size"])
    spec = workflow([asking, size, count], {"count": COUNT}, inputs={"words": {"type": "array"}})
    spec["outputs"] = {
        "n": {"source_reference": "steps.count.output"},
        "size": {"source_reference": "steps.size.output"},
    }
    assert ratchet("init").code == 0
    assert ratchet("workflow", "save", write(tmp_path, spec)).code == 0
    done = chat("/run counting words=[1,2]", "maybe", "yes, since it is late", "many", "7")
    assert done.code == 0, done.err
    assert "Say yes or no." in done.err
    assert '"n": 2' in done.out
    assert '"size": 7' in done.out
    [_, answered] = ratchet("approval", "list", "--status", "approved", "--json").json
    assert answered["comment"] == "since it is late"


class Screen:
    """A chat in a window of tmux."""

    def __init__(self, tmux: str, socket: Path, started: Program, *options: str) -> None:
        self._tmux = (tmux, "-S", str(socket))
        environment = [f"-e{name}={started.env[name]}" for name in ("PYTHONPATH", "XDG_CACHE_HOME")]
        unset = "env -u OPENAI_API_KEY -u ANTHROPIC_API_KEY -u OPENROUTER_API_KEY"
        line = f"{unset} {' '.join(MODULE)} chat {' '.join(options)}; echo ended with $?; sleep 600"
        size = ("-x", "120", "-y", "200")
        self._run(
            "-f", "/dev/null", "new-session", "-d", *size, *environment, "-c", str(started.directory), line
        )

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def shows(self, wanted: str, times: int = 1) -> None:
        eventually(lambda: self.text.count(wanted) >= times)

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def window(plain_program: Program, tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    tmux = program("tmux", packages=["tmux"])
    opened: list[Screen] = []

    def start(*options: str) -> Screen:
        opened.append(Screen(tmux, tmp_path / f"tmux-{len(opened)}", plain_program, *options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.soak
def test_a_chat_is_played_in_a_terminal_and_ctrl_c_cancels_what_runs_and_nothing_else(
    window: Callable[..., Screen], plain_program: Program, tmp_path: Path
) -> None:
    slow = "import time\n\ndef run(seconds):\n    time.sleep(seconds)\n    return 'slept'\n"
    nap = step("nap", input_mapping={"seconds": "inputs.seconds"})
    spec = workflow([nap], {"nap": slow}, name="napping", inputs={"seconds": {"type": "number"}})
    plain_program.make_home()
    assert plain_program("workflow", "save", write(tmp_path, spec)).code == 0
    screen = window()
    screen.shows("Say what you want")
    screen.type("add 10 and 20")
    screen.shows("└── basic_calculator")
    for question in ("[add]:", "[10]:", "[20]:"):
        screen.shows(question)
        screen.press("Enter")
    screen.shows('"result": 30')

    screen.type("/run napping seconds=600")
    screen.shows("0 of 1 nap")
    screen.press("C-c")
    screen.shows("is cancelled")
    screen.type("/run napping seconds=0")
    screen.shows("slept")

    screen.type("/und")
    screen.shows("there is no verb /und")
    screen.type("/undo")
    screen.shows("is undone")
    screen.press("C-d")
    screen.shows("ended with 0")

    again = window()
    again.shows("Continues with")
    again.press("Up")
    again.shows("> /undo")
    again.press("C-c")
    again.type("/exit")
    again.shows("ended with 0")


def test_the_guide_names_every_option_of_the_chat() -> None:
    from ratchet.cli.commands.chat import chat

    assert isinstance(chat, Command)
    guide = (Path(__file__).parents[2] / "docs" / "tutorials" / "chat.md").read_text()
    assert all(option in guide for each in chat.params for option in each.opts if option.startswith("--"))
