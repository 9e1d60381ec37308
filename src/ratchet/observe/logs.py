"""Structured logs: one set-up for our own lines and for those of libraries, without secrets.

Every line written inside `bind(run_id=…)` carries that id, also in the tasks and threads that are
started there with a copy of the context (`asyncio.create_task`, `asyncio.to_thread`).

structlog takes a tenth of a second to import; it is loaded with the first line that is written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from ratchet.config.redaction import redact_under

if TYPE_CHECKING:
    import structlog
    from structlog.typing import Processor


Format = Literal["text", "json"]

# They install handlers of their own, which would write a second format next to ours.
_LIBRARIES = ("uvicorn", "uvicorn.access", "uvicorn.error", "sqlalchemy", "alembic")
# At INFO, Alembic lists its migrations, and the HTTP clients write a line for each request.
_QUIET = ("sqlalchemy", "alembic", "httpx", "httpcore", "httpx2", "httpcore2", "mcp")

_METHODS = ("debug", "info", "warning", "error", "exception", "critical", "log")


def configure(level: str = "info", format: Format = "text", stream: TextIO | None = None) -> None:
    """Send every line of this process to `stream` (stderr) in one format. May be called again."""
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(_Formatter(format, handler))
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, _Handler)] + [handler]
    root.setLevel(level.upper())
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.propagate = True
        library.handlers = []
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that takes an event and its values: `log.info("job finished", seconds=1.2)`."""
    return cast("structlog.stdlib.BoundLogger", _Logger(name))


@contextmanager
def bind(
    *,
    run_id: object = None,
    step_id: object = None,
    attempt_id: object = None,
    job_id: object = None,
    request_id: object = None,
) -> Iterator[None]:
    """Put these ids on every line and span until the block ends. One that is not given stays as it was."""
    ids = {
        "run_id": run_id,
        "step_id": step_id,
        "attempt_id": attempt_id,
        "job_id": job_id,
        "request_id": request_id,
    }
    import structlog

    with structlog.contextvars.bound_contextvars(
        **{key: value for key, value in ids.items() if value is not None}
    ):
        yield


def bound() -> Mapping[str, Any]:
    """The ids that are bound here."""
    import structlog

    return structlog.contextvars.get_contextvars()


class _Logger:
    """A logger of structlog's, made when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        # Wrapped by hand: the global set-up of structlog, which would print to stdout, is left to others.
        made = structlog.wrap_logger(
            logging.getLogger(self._name),
            processors=[
                structlog.stdlib.filter_by_level,
                *_enriching(),
                structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
        ).bind()
        self.__dict__.update({name: getattr(made, name) for name in _METHODS})
        return getattr(made, method)


class _Formatter(logging.Formatter):
    """One of structlog's, made for the first line."""

    def __init__(self, format: Format, handler: _Handler) -> None:
        super().__init__()
        self._format = format
        self._handler = handler
        self._made: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._made is None:
            # Never a module of it first: another thread that imports structlog meanwhile would be given half of it.
            import structlog

            self._made = structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[*_enriching()],
                processors=_rendering(self._format, self._handler),
            )
        return self._made.format(record)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second `configure` can tell it from the handlers of others."""


def _rendering(format: Format, handler: _Handler) -> list[Processor]:
    import structlog

    shared: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        # Rendered here and as plain text: the console's own rendering would show local variables.
        structlog.processors.format_exc_info,
        _redact,
    ]
    if format == "json":
        return [*shared, structlog.processors.JSONRenderer()]
    return [*shared, structlog.dev.ConsoleRenderer(colors=handler.stream.isatty(), pad_event_to=0)]


def _redact(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {key: redact_under(key, value) for key, value in line.items()}


@cache
def _enriching() -> tuple[Processor, ...]:
    import structlog

    return (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
    )
