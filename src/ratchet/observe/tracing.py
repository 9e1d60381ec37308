"""OpenTelemetry spans, for those who have a collector. Costs next to nothing when it is off.

The SDK comes with the extra `otel` and is imported only by `configure(enabled=True)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ratchet.config.redaction import redact_under
from ratchet.observe.logs import bound

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_OFF: AbstractContextManager[None] = nullcontext()
_provider: TracerProvider | None = None
_tracer: Tracer | None = None


def configure(enabled: bool, endpoint: str | None = None) -> None:
    """Start or stop sending spans of this process.

    Without an `endpoint` the variables of OpenTelemetry decide. Raises `Missing` without the extra.
    """
    global _provider, _tracer
    shutdown()
    if enabled:
        _provider = _sending_to(endpoint)
        _tracer = _provider.get_tracer("ratchet")


def span(name: str, **attributes: Any) -> AbstractContextManager[None]:
    """A span around a block, with the ids bound by `logs.bind`. An exception marks it failed, and is raised."""
    return _OFF if _tracer is None else _span(_tracer, name, attributes)


def shutdown() -> None:
    """Send what is left and stop."""
    global _provider, _tracer
    if _provider is not None:
        _provider.shutdown()
    _provider = _tracer = None


@contextmanager
def _span(tracer: Tracer, name: str, attributes: dict[str, Any]) -> Iterator[None]:
    values = {key: value for key, value in {**bound(), **attributes}.items() if value is not None}
    with tracer.start_as_current_span(name, attributes={k: redact_under(k, v) for k, v in values.items()}):
        yield


def _sending_to(endpoint: str | None) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        from ratchet.extras import missing

        raise missing("otel", "tracing.enabled") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "ratchet"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=_traces_url(endpoint))))
    return provider


def _traces_url(endpoint: str | None) -> str | None:
    """The exporter wants the full path; people name the collector."""
    if endpoint is None or urlsplit(endpoint).path.strip("/"):
        return endpoint
    return endpoint.rstrip("/") + "/v1/traces"
