"""One session of a described agent while it is held: what it used and said, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ratchet.config.command_settings import Command
from ratchet.config.llm_settings import Prices
from ratchet.engines.answer import NotAnAnswer, parse_answer
from ratchet.engines.command.endings import did_nothing, fault_of
from ratchet.engines.command.findings import Findings
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.prices import how_to_price, no_price, price_of, priced
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import EventKind, Request, Session
from ratchet.engines.supervision import Invocation, check_budget
from ratchet.engines.transcript import Transcript
from ratchet.kernel import Usage
from ratchet.sandbox import Finished

# What is told line by line; an agent that prints more is still read to its end.
_NOTED = 10_000


class Sitting:
    def __init__(
        self,
        name: str,
        description: Command,
        request: Request,
        secrets: Secrets,
        prices: Mapping[str, Prices],
    ) -> None:
        self._name = name
        self._description = description
        self._request = request
        self._secrets = secrets
        self.model = request.model or description.model
        self._price = price_of(self.model, prices)
        self._transcript = Transcript(request)
        self._findings = Findings(description)
        self._noted = 0
        self._told = Usage()
        self._text = ""
        self._layers: tuple[str, ...] = ()
        self.worked = False

    def check_price(self) -> None:
        """Raise `Fault` when a budget of money is given that could not be held to."""
        allowed = self._request.limits.cost_usd
        if allowed is not None and self._price is None and not self._description.reports_cost:
            raise Fault(
                Failure.MISSING,
                no_price(self.model or f"the model of {self._name}", allowed),
                hint=how_to_price(self.model or "MODEL"),
            )

    def begin(self, invocation: Invocation) -> None:
        self.worked = True
        self._transcript.say(EventKind.STARTED, data={"program": invocation.argv[0], "model": self.model})

    def hear(self, line: bytes) -> None:
        text = self._secrets.hide(line.decode(errors="replace")).rstrip("\r\n")
        self._findings.hear(text)
        self._noted += 1
        if self._noted <= _NOTED and text:
            self._transcript.say(EventKind.NOTE, text)

    def used(self) -> Usage:
        """What was used until now; the listener is told whenever that is more than before."""
        counted = self._findings.usage
        known = counted if counted.cost_microusd else priced(counted, self._price)
        usage = replace(known, wall_ms=self._transcript.wall_ms)
        if (usage.tokens, usage.cost_microusd) != (self._told.tokens, self._told.cost_microusd):
            self._told = usage
            self._transcript.say(EventKind.USAGE, data={"model": self.model, **asdict(usage)})
        return usage

    def look(self) -> Fault | None:
        """What is to end the session while it runs."""
        return check_budget(self._request, self.used())

    def session(self, output: Any = None) -> Session:
        usage = self.used()
        return Session(
            engine=self._name,
            model=self.model,
            text=self._text,
            output=output,
            usage=usage,
            transcript=self._transcript.content,
            data={"layers": list(self._layers)},
        )

    def conclude(self, finished: Finished, file: Path | None) -> Session:
        """The session, now that its program has ended. Raises `Fault` unless it left something that can be used."""
        self._layers = finished.layers
        stderr = self._secrets.hide(finished.stderr.decode(errors="replace"))
        self._findings.close(stderr)
        printed = f"{self._findings.output}\n{stderr}"
        if stderr.strip():
            self._transcript.say(EventKind.NOTE, stderr.strip(), {"stream": "stderr"})
        self.used()
        if fault := fault_of(self._description, self._name, finished, printed, self._findings.error):
            self.worked = not did_nothing(self._description, printed)
            raise fault
        if fault := self.look():
            raise fault
        answer = self._findings.answer(file)
        if answer is None:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"{self._name} ended well but left no answer in {file or self._description.answer}",
                hint="its transcript has all that it printed; check `answer` in its description",
            )
        self._text = self._secrets.hide(answer)
        if self._text:
            self._transcript.say(EventKind.MESSAGE, self._text)
        return self.session(self._output())

    def _output(self) -> Any:
        if self._request.output_schema is None:
            return None
        try:
            return parse_answer(self._text, self._request.output_schema)
        except NotAnAnswer as error:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"{self._name} did not answer as it was asked: {error}",
                hint="try again, or try a model that keeps to schemas",
            ) from None
