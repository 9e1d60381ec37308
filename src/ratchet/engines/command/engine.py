"""The engine behind a description: starts the agent's program and reads what it leaves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ratchet.config.command_settings import Command
from ratchet.engines.command.preparation import answer_file, find_program, prepare
from ratchet.engines.command.sitting import Sitting
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.fitness import check_fit
from ratchet.engines.prices import price_of
from ratchet.engines.privacy import private_places
from ratchet.engines.ready import READY
from ratchet.engines.registry import Surroundings
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import Capabilities, Request, Session
from ratchet.engines.session_home import session_home
from ratchet.engines.supervision import Invocation, could_not_write, supervise, try_out

_VERSION_SECONDS = 20.0
_SECRET = re.compile(r"KEY$|TOKEN$|PASSWORD$|SECRET$")


def open_command(surroundings: Surroundings, name: str) -> Engine:
    """The agent that is described under `name` in the settings, or ready; `name:model` gives it a model."""
    plain, _, model = name.partition(":")
    description = surroundings.settings.engines.command.get(plain) or READY[plain]
    return CommandEngine(
        surroundings, plain, description.model_copy(update={"model": model} if model else None)
    )


class CommandEngine:
    def __init__(self, surroundings: Surroundings, name: str, description: Command) -> None:
        self._name = name
        self._description = description
        self._prices = surroundings.settings.llm.prices
        self._home = surroundings.home
        self._environment = surroundings.environment
        self._secrets = Secrets(
            self._environment.get(each, "")
            for each in description.environment
            if _SECRET.search(each.upper())
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            edits_files=self._description.edits_files,
            structured_output=self._description.answer != "none",
            reports_usage=self._description.reports_usage,
        )

    async def check(self) -> Readiness:
        try:
            program = find_program(self._description, self._name, self._environment)
            version = await self._version(program)
        except Fault as fault:
            return Readiness(False, str(fault), fault.hint, fault.failure)
        model = self._description.model
        known = self._description.reports_cost or price_of(model, self._prices) is not None
        return Readiness(
            True,
            f"{version} at {program}" if version else str(program),
            unpriced=None if known else model or f"the model of {self._name}",
        )

    async def propose(self, request: Request) -> Session:
        check_fit(request, self._name, self.capabilities)
        sitting = Sitting(self._name, self._description, request, self._secrets, self._prices)
        try:
            sitting.check_price()
            program = find_program(self._description, self._name, self._environment)
            async with session_home(self._home) as home:
                invocation = self._invocation(program, request, home, sitting.model)
                sitting.begin(invocation)
                finished = await supervise(invocation, request, hear=sitting.hear, look=sitting.look)
                return sitting.conclude(finished, answer_file(self._description, request, home))
        except OSError as error:
            raise could_not_write(error).failed(sitting.session(), worked=sitting.worked) from error
        except Fault as fault:
            raise fault.failed(sitting.session(), worked=sitting.worked) from None

    def _invocation(self, program: Path, request: Request, home: Path, model: str | None) -> Invocation:
        prepared = prepare(self._description, program, request, home, self._environment, model)
        shown = (home, prepared.cwd, program, *request.readable)
        hidden = private_places(self._home, self._environment, shown, request.hidden)
        return replace(prepared, hidden=hidden)

    async def _version(self, program: Path) -> str | None:
        """What it says its version is; `None` if the description does not tell how to ask. Raises `Fault`."""
        if not self._description.version:
            return None
        async with session_home(self._home) as home:
            asking = self._invocation(program, Request("version"), home, None)
            argv = (str(program), *self._description.version)
            finished = await try_out(replace(asking, argv=argv), _VERSION_SECONDS)
        said = (finished.stdout or finished.stderr).decode(errors="replace").strip().splitlines()
        if not finished.ok:
            raise Fault(
                Failure.MISSING,
                f"{program} cannot be run: {said[-1] if said else finished.problem}",
                hint=f"reinstall it: {self._description.install}" if self._description.install else None,
            )
        return said[0] if said else "no version told"
