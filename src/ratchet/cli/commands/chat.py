"""`ratchet chat`: say what you want, see the plan, and have it run"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.catalogue import CATALOGUE, Branch
from ratchet.cli.chat_input import ChatInput, ChatPlan, ChatSession, open_input
from ratchet.cli.command import command
from ratchet.cli.failures import tell
from ratchet.cli.output import note, print_line
from ratchet.cli.params import simulated_option
from ratchet.cli.session import CliSession, configure_logs
from ratchet.cli.words import age, compact, lines, one_line
from ratchet.kernel import Missing, Misuse, RatchetError, RunStatus

if TYPE_CHECKING:
    from ratchet.cli.foreground import Foreground
    from ratchet.flowkit.spec import WorkflowInput, WorkflowSpec
    from ratchet.workflows.operations import OutcomeAnswer

# Verbs of a chat that are short for a command; every other command is a verb by its own name.
_SHORT: Mapping[str, tuple[str, ...]] = {
    "tools": ("tool", "list"),
    "workflows": ("workflow", "list"),
    "cost": ("usage",),
}
_ENDLESS = 10_000


@command(
    examples=[
        "ratchet chat",
        "ratchet chat --engine llm:deep",
        """printf 'add 10 and 20\\n\\n\\n\\n' | ratchet chat""",
    ],
    see=["workflow new", "workflow run", "tool search"],
)
@click.option("--engine", metavar="ENGINE", help="Who plans; see `ratchet engine list`.")
@click.option("--model", metavar="MODEL", help="The model that the engine uses.")
@click.option(
    "--new", "fresh", is_flag=True, help="Begin a new session; the last one is continued if not given."
)
@simulated_option
def chat(session: CliSession, engine: str | None, model: str | None, fresh: bool, simulated: bool) -> int:
    """Say what you want: it is planned, shown and run.

    Where something is needed, you are asked.

    What begins with / is a verb: /help lists them, and every command of `ratchet` is one. Where no model can be asked,
    the tools that need none are looked through for one that fits. Ctrl-C cancels what runs, and nothing else; what was
    done of it is kept for the next time. What was said is kept in the home and continued the next time.

    From a script each line of the standard input is a turn or the answer to a question. With --json each turn that ran
    something is a line of JSON. Exits with 1 when a turn of a script failed.
    """
    loaded = session.load()
    configure_logs(loaded)
    folder = loaded.home / "chat"
    with contextlib.ExitStack() as stack:
        kept = ChatSession.open(folder / "session.json")
        if fresh:
            kept.clear()
        talk = Chat(session, kept, stack, engine, model, simulated=simulated)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return talk.hold(open_input(folder, talk.completions, quiet=session.json))


class ChatFailed(Exception):
    """A turn that failed and has said why."""


class QuestionLeft(Exception):
    """A verb was typed in the place of an answer."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


class Chat:
    """One chat: turn after turn, until the input ends."""

    def __init__(
        self,
        session: CliSession,
        kept: ChatSession,
        stack: contextlib.ExitStack,
        engine: str | None,
        model: str | None,
        *,
        simulated: bool,
    ) -> None:
        self._session = session
        self._kept = kept
        self._stack = stack
        self._asked: dict[str, Any] = {"engine": engine, "model": model}
        self._simulated = simulated
        self._input: ChatInput
        self._own: dict[str, tuple[str, Callable[[list[str]], object]]] = {
            "help": ("Show the verbs, or the help of one.", self._help),
            "plan": ("Plan WHAT, and do not run it; alone, show the plan.", self._plan),
            "run": ("Run the plan, or WORKFLOW, with KEY=VALUE as inputs.", self._run),
            "edit": ("Change the plan: as you say, or in your editor.", self._edit),
            "evolve": ("Have a TOOL rewritten; alone, the weakest one of the plan.", self._evolve),
            "undo": ("Take back the last change: of the plan, or of a tool by /evolve.", self._undo),
            "history": ("Show what was said and what became of it.", self._history),
            "new": ("Begin a new session.", self._new),
            "exit": ("End the chat; so does Ctrl-D.", self._exit),
        }

    @cached_property
    def _here(self) -> Foreground:
        # Opened by the first turn that needs it, so that the first prompt is there at once.
        from ratchet.cli.foreground import foreground

        return self._stack.enter_context(foreground(self._session.load()))

    def hold(self, input: ChatInput) -> int:
        """Take turns until the input ends; the exit code."""
        self._input = input
        failed = False
        if input.interactive:
            self._greet()
        while True:
            try:
                line = input.read()
            except EOFError:
                return int(failed and not input.interactive)
            except KeyboardInterrupt:
                continue
            try:
                if line and not self._turn(line):
                    failed = True
            except SystemExit:
                return int(failed and not input.interactive)

    def _turn(self, line: str) -> bool:
        """Whether it went well. What went wrong is said, and the chat continues."""
        try:
            if line.startswith("/"):
                self._verb(line)
            elif line in ("exit", "quit"):
                self._exit([])
            else:
                self._wish(line)
        except ChatFailed:
            return False
        except QuestionLeft as left:
            note("The question is left open.")
            return self._turn(left.line)
        except EOFError:
            note("error: the input ended before the question was answered")
            return False
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  a turn that fails ends no chat
            tell(error, self._session)
            self._kept.record(line, error=type(error).__name__)
            return False
        return True

    def _greet(self) -> None:
        note("Say what you want; /help lists what else there is.")
        plan = self._kept.plan
        if plan is not None and self._kept.turns:
            name = one_line(str(plan.spec.get("workflow_id")))
            note(f"Continues with {name} of {age(self._kept.turns[-1]['at'])}; /new begins afresh.")

    def _ask(self, question: str, default: str = "") -> str:
        """An answer. A verb is none: it leaves the question."""
        answer = self._input.ask(question, default)
        if answer.startswith("/") and answer[1:].split(" ")[0] in self.verbs():
            raise QuestionLeft(answer)
        return answer

    # What is said

    def _wish(self, text: str) -> None:
        self._take(self._planned(text))
        self._carry_out(text, {})

    def _planned(self, text: str) -> ChatPlan:
        """A plan for what was said: by the engine, or where that cannot be asked by what is known of tools."""
        from ratchet.engines.preflight import NotReady
        from ratchet.workflows.overseer.request import checked_sentence

        sentence = checked_sentence(text)
        try:
            return self._overseen(sentence)
        except (NotReady, Missing) as refused:
            return self._matched(sentence, refused)

    def _overseen(self, sentence: str) -> ChatPlan:
        from ratchet.cli.commands.workflow_run import PLANNED, print_why_not
        from ratchet.cli.progress import progress
        from ratchet.workflows.overseer import planned_of, start_plan
        from ratchet.workflows.preflight import check_overseer

        here, quiet = self._here, self._session.json
        here.check(partial(check_overseer, here.runtime, sentence, reuse=True, **self._asked), detach=False)
        run_id = start_plan(here.runtime, sentence, simulated=self._simulated, actor="cli", **self._asked)
        with progress("planning", quiet=quiet, told=PLANNED) as hear:
            ended = here.work_on(run_id, hear, quiet=quiet, give_up=True)
        if ended.status is not RunStatus.COMPLETED:
            self._kept.record(sentence, run_id=run_id, status=str(ended.status))
            print_why_not(self._session, here, ended)
            raise ChatFailed
        planned = planned_of(ended)
        if planned.reused is not None:
            note(f"No model was asked for the plan: {one_line(planned.reused.reason)}.")
        for remark in planned.notes:
            note(one_line(remark))
        return ChatPlan(sentence, dict(planned.spec))

    def _matched(self, sentence: str, refused: RatchetError) -> ChatPlan:
        from ratchet.flowkit.writer import write_spec
        from ratchet.workflows.overseer.match import guess_inputs, match_tools

        missing = refused.exit_code == Missing.exit_code
        why = "No model is set up" if missing else "No model can be asked now"
        note(f"{why}, so nothing is planned: {one_line(str(refused))}.")
        if refused.hint:
            note(f"hint: {one_line(refused.hint)}")
        found = match_tools(self._here.runtime, sentence)
        if not found:
            raise Misuse(
                "no tool that needs no model fits this",
                hint="/tools lists the tools; `ratchet setup` sets up a model",
            )
        chosen = found[0]
        if not chosen.clear:
            note("The tools that need no model and come nearest:")
            for number, each in enumerate(found, 1):
                note(f"  {number}  {each.tool.id}: {one_line(each.tool.description)}")
            answer = self._ask("Which one? Its number, or nothing for none")
            if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
                raise Misuse("no tool was chosen", hint="say it in other words, or name a tool")
            chosen = found[int(answer) - 1]
        guessed = guess_inputs(chosen.spec.inputs, sentence)
        return ChatPlan(sentence, write_spec(chosen.spec), guessed)

    def _take(self, plan: ChatPlan) -> None:
        self._kept.take(plan)
        if not self._session.json:
            print_tree(read_plan(plan))

    # Running

    def _carry_out(self, said: str, given: Mapping[str, str]) -> None:
        from ratchet.cli.commands.workflow import print_outcome
        from ratchet.operations import record
        from ratchet.workflows.preflight import check_workflow
        from ratchet.workflows.runs import prepare, start_workflow

        plan = self._kept.plan
        if plan is None:
            raise Misuse("there is no plan to run", hint="say what you want, or name one: /run WORKFLOW")
        here, spec = self._here, read_plan(plan)
        values = self._inputs(spec, given, plan.inputs)
        prepared = prepare(here.runtime, spec, values)
        here.check(partial(check_workflow, here.runtime, prepared), detach=False)
        with here.ledger.write(actor="cli") as tx:
            run_id = start_workflow(tx, here.runtime, prepared, simulated=self._simulated)
        self._kept.inputs = values
        found = self._carried(run_id, spec)
        self._kept.record(said, run_id=run_id, workflow=spec.workflow_id, status=str(found.status))
        if self._session.json:
            print_line({"said": said, **record(found)})
        else:
            print_outcome(found, as_json=False)
        if found.status != "completed":
            raise ChatFailed

    def _carried(self, run_id: int, spec: WorkflowSpec) -> OutcomeAnswer:
        """Work until the run has ended, or waits for what cannot be answered here."""
        from ratchet.cli.operation import CliCall
        from ratchet.cli.progress import workflow_progress
        from ratchet.workflows.operations import outcome

        here, quiet = self._here, self._session.json
        while True:
            with workflow_progress(spec.workflow_id, len(spec.steps), quiet=quiet, speak=True) as hear:
                ended = here.work_on(run_id, hear, quiet=quiet, give_up=True)
            if ended.status is not RunStatus.BLOCKED or not self._answered(run_id):
                return outcome(CliCall(self._session, here.ledger, here.runtime), run_id)

    def _answered(self, run_id: int) -> bool:
        """Ask the person what a run waits for; whether there was something to ask."""
        from ratchet.cli.operation import user_name
        from ratchet.ledger.questions import ApprovalStatus, list_approvals
        from ratchet.runtime.runs import answer_approval

        here = self._here
        with here.ledger.read() as tx:
            waiting = list_approvals(tx, status=ApprovalStatus.PENDING, run_id=run_id, limit=1)
        for each in waiting:
            typed = each.answer_schema is not None
            said = self._answer(each.question) if typed else self._decided(each.question)
            try:
                with here.ledger.write(actor="cli") as tx:
                    answer_approval(tx, here.runtime, each.id, by=user_name(), **said)
            except Misuse as error:
                # It is asked again: the run still waits.
                note(f"error: {one_line(str(error))}")
        return bool(waiting)

    def _answer(self, question: str) -> dict[str, Any]:
        """An answer of the kind that is asked for; none is a no."""
        from ratchet.runtime.operations.approvals import read_answer

        text = self._ask(f"{lines(question)} (an answer, or nothing to refuse)")
        return {"approved": bool(text), "answer": read_answer(None, text) if text else None}

    def _decided(self, question: str) -> dict[str, Any]:
        """Yes or no, and why."""
        while True:
            answer = self._ask(f"{lines(question)} (yes or no, and why if you like)")
            word, _, comment = answer.partition(" ")
            match word.casefold().strip(",.:"):
                case "y" | "yes":
                    return {"approved": True, "comment": comment or None}
                case "n" | "no":
                    return {"approved": False, "comment": comment or None}
            note("Say yes or no.")

    def _inputs(
        self, spec: WorkflowSpec, given: Mapping[str, str], known: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The inputs of a run: those given, and for the rest what the person answers."""
        from ratchet.flowkit.errors import SpecError
        from ratchet.flowkit.inputs import given_text, parse_input_texts

        try:
            values = parse_input_texts(spec, {name: given_text(text) for name, text in given.items()})
        except SpecError as error:
            raise Misuse("; ".join(error.problems), hint="/run KEY=VALUE …") from None
        for each in spec.inputs:
            if each.name not in values and each.required and each.default is None:
                values[each.name] = self._asked_for(spec, each, known.get(each.name))
        return values

    def _asked_for(self, spec: WorkflowSpec, wanted: WorkflowInput, known: Any) -> Any:
        from ratchet.flowkit.errors import SpecError
        from ratchet.flowkit.inputs import given_text, parse_input_texts, value_problems

        default = known if isinstance(known, str) else "" if known is None else json.dumps(known)
        while True:
            answer = self._ask(_input_question(wanted), default)
            try:
                value = parse_input_texts(spec, {wanted.name: given_text(answer)})[wanted.name]
                problems = value_problems(wanted, value)
            except SpecError as error:
                problems = error.problems
            if not problems:
                return value
            for problem in problems:
                note(f"error: {one_line(problem)}")

    # Verbs

    def _verb(self, line: str) -> None:
        try:
            name, *rest = shlex.split(line[1:])
        except ValueError as error:
            if line.startswith(("/plan ", "/edit ")):
                name, rest = line[1:5], [line[6:]]
            else:
                raise Misuse(f"the line cannot be read: {error}", hint="close the quotes") from None
        if name in ("quit", "q"):
            name = "exit"
        if name in self._own:
            self._own[name][1](rest)
            return
        self._command(name, rest)

    def _command(self, name: str, rest: list[str]) -> None:
        """Call the command of this name, as if it were typed after `ratchet`."""
        from ratchet.cli.program import run

        known = _SHORT.get(name)
        if name == "tools" and rest:
            known = ("tool", "search")
        words = [*known, *rest] if known else [name, *rest]
        part = CATALOGUE.get(words[0])
        if part is None or words[0] == "chat":
            raise Misuse(f"there is no verb /{name}", hint=_near(name, self.verbs()))
        if isinstance(part, Branch) and len(words) == 1:
            words.append("list" if "list" in part.parts else "--help")
        flags = dict(self._session.flags)
        asked = CliSession(json=self._session.json, verbose=self._session.verbose, flags=flags)
        if run(words, asked):
            raise ChatFailed

    def _help(self, rest: list[str]) -> None:
        if rest:
            name = rest[0].removeprefix("/")
            if name in self._own:
                print(f"/{name}  {self._own[name][0]}")
                return
            self._command(name, [*rest[1:], "--help"])
            return
        for name, (about, _) in self._own.items():
            print(f"/{name:<10} {about}")
        for name, words in _SHORT.items():
            print(f"/{name:<10} The same as `ratchet {' '.join(words)}`.")
        for name, part in CATALOGUE.items():
            if name != "chat":
                print(f"/{name:<10} {part.help}")
        print("\nAnything else is what you want done: it is planned, shown and run.")

    def _plan(self, rest: list[str]) -> None:
        if rest:
            self._take(self._planned(" ".join(rest)))
            note("/run runs it, /edit changes it, /undo takes it back.")
            return
        plan = self._kept.plan
        if plan is None:
            raise Misuse("there is no plan yet", hint="say what you want")
        if self._session.json:
            print_line(plan.spec)
        else:
            print_tree(read_plan(plan))

    def _run(self, rest: list[str]) -> None:
        from ratchet.workflows.saved import load_workflow

        named = [each for each in rest if "=" not in each]
        if len(named) > 1:
            raise Misuse(f"{named[1]!r} is no input", hint="/run WORKFLOW KEY=VALUE …")
        if named:
            from ratchet.flowkit.writer import write_spec

            spec, _ = load_workflow(self._here.runtime, named[0])
            self._take(ChatPlan(spec.description or spec.workflow_id, write_spec(spec)))
        given = dict(each.split("=", 1) for each in rest if "=" in each)
        self._carry_out(shlex.join(["/run", *rest]), given)

    def _edit(self, rest: list[str]) -> None:
        plan = self._kept.plan
        if plan is None:
            raise Misuse("there is no plan to change", hint="say what you want")
        if rest:
            changed = self._overseen(f"{plan.sentence}\nChange it: {' '.join(rest)}")
            self._take(replace(changed, inputs=plan.inputs))
            return
        if not self._input.interactive:
            raise Misuse("there is no editor in a script", hint="say the change: /edit WHAT TO CHANGE")
        edited = click.edit(json.dumps(plan.spec, indent=2, ensure_ascii=False), extension=".json")
        if edited is None:
            note("Nothing is changed.")
            return
        self._take(ChatPlan(plan.sentence, self._checked(edited), plan.inputs))

    def _checked(self, text: str) -> dict[str, Any]:
        from ratchet.flowkit.errors import SpecError
        from ratchet.flowkit.jsontext import load_json
        from ratchet.workflows.files import BadWorkflow
        from ratchet.workflows.saved import check_runnable

        try:
            data = load_json(text)
        except SpecError as error:
            raise BadWorkflow(error.problems) from None
        problems = check_runnable(self._here.runtime, data)
        if problems:
            raise BadWorkflow(problems)
        return dict(data)

    def _evolve(self, rest: list[str]) -> None:
        """The command, and what it takes to undo it."""
        from ratchet.ledger.tools import get_tool
        from ratchet.workflows.evolution.requests import choose_tool

        plan = self._kept.plan
        if not rest and plan is None:
            raise Misuse("there is no tool to make better", hint="name one: /evolve TOOL")
        wanted = rest or [str(plan.spec["workflow_id"]) if plan else ""]
        chosen = choose_tool(self._here.runtime, wanted[0])

        def current() -> int | None:
            with self._here.ledger.read() as tx:
                return get_tool(tx, chosen.tool, folder=chosen.folder).current_id

        before = current()
        try:
            self._command("workflow", ["evolve", chosen.name, *wanted[1:]])
        finally:
            if current() != before:
                self._kept.change({"tool": chosen.name})

    def _undo(self, _: list[str]) -> None:
        if not self._kept.changes:
            raise Misuse("there is nothing to take back", hint="/history shows what was done")
        last = self._kept.changes[-1]
        if "tool" in last:
            self._command("tool", ["rollback", last["tool"]])
        self._kept.changes.pop()
        self._kept.inputs = {}
        self._kept.save()
        if "plan" in last:
            note(
                f"{one_line(str(last['plan']['spec'].get('workflow_id')))} is undone; its runs stay on record."
            )
            self._plan([]) if self._kept.plan is not None else note("There is no plan now.")

    def _history(self, _: list[str]) -> None:
        for each in self._kept.turns:
            became = " ".join(str(each[key]) for key in ("workflow", "status", "error") if each.get(key))
            run = f"run {each['run_id']} " if "run_id" in each else ""
            print(f"{age(each['at'])}: {one_line(each['said'])}  [{run}{became}]")

    def _new(self, _: list[str]) -> None:
        self._kept.clear()
        note("A new session begins.")

    def _exit(self, _: list[str]) -> None:
        raise SystemExit(0)

    def verbs(self) -> list[str]:
        return [*self._own, *_SHORT, *(name for name in CATALOGUE if name != "chat")]

    def completions(self, typed: str) -> Iterable[str]:
        """The words that may come at the end of what was typed."""
        first, *more = typed.split(" ")
        if not first.startswith("/"):
            return ()
        if not more:
            return [f"/{name}" for name in self.verbs() if name.startswith(first[1:])]
        part = CATALOGUE.get(first[1:])
        if isinstance(part, Branch) and len(more) == 1:
            return [name for name in part.parts if name.startswith(more[0])]
        return ()


def read_plan(plan: ChatPlan) -> WorkflowSpec:
    from ratchet.flowkit.reader import read_spec

    return read_spec(plan.spec)


def print_tree(spec: WorkflowSpec) -> None:
    """The steps of a plan, each below the one that it waits for longest."""
    # Loaded here, as everywhere in commands: it takes long.
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    from ratchet.flowkit.graph import dependencies, waves

    head = f"{spec.workflow_id}: {spec.description}" if spec.description else spec.workflow_id
    root = Tree(Text(one_line(head)))
    edges = dependencies(spec)
    level = {name: number for number, wave in enumerate(waves(spec)) for name in wave}
    branches: dict[str, Tree] = {}
    for step in sorted(spec.steps, key=lambda step: level[step.step_id]):
        needs = sorted(edges[step.step_id], key=lambda name: level[name])
        words = [step.step_id, step.tool_name or str(step.step_type)]
        if step.for_each is not None:
            words.append(
                f"for each of {step.for_each if isinstance(step.for_each, str) else compact(step.for_each)}"
            )
        if step.when:
            words.append(f"if {step.when}")
        if len(needs) > 1:
            words.append(f"after {', '.join(needs)}")
        below = branches[needs[-1]] if needs else root
        branches[step.step_id] = below.add(Text(one_line("  ".join(words))))
    width = None if sys.stdout.isatty() else _ENDLESS
    Console(width=width, highlight=False).print(root)


def _input_question(wanted: WorkflowInput) -> str:
    choices = wanted.extra.get("enum")
    kind = f"one of {', '.join(map(str, choices))}" if isinstance(choices, list) else wanted.type
    about = f", {one_line(wanted.description)}" if wanted.description else ""
    return f"{one_line(wanted.name)} ({kind}{about})"


def _near(name: str, verbs: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, verbs, n=1, cutoff=0.5)
    return f"did you mean /{near[0]}?" if near else "/help lists the verbs"
