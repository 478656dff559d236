"""The SDK's side of tracing: where spans go. Imported only when an exporter is configured."""

from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

import telemetry

_FLUSH_MS: Final = 1_000


class WantedIdGenerator(IdGenerator):
    """Gives a span the ids that `telemetry.emit` wants, random ones to anybody else."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        """Return the wanted span id."""
        return telemetry.wanted.span_id or self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the wanted trace id."""
        return telemetry.wanted.trace_id or self._random.generate_trace_id()


def provider_of(exporter: SpanExporter, *, service: str, at_once: bool = False) -> TracerProvider:
    """Build a provider. Which purchases are recorded was decided when they came in.

    Args:
        exporter: where spans go.
        service: the process's role, as `service.name`.
        at_once: export each span when it ends (tests) instead of in batches by a thread.
    """
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource.create({"service.name": f"seckill-{service}"}),
        id_generator=WantedIdGenerator(),
    )
    processor = SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)
    return provider


def start_otlp(*, service: str, ratio: float) -> TracerProvider:
    """Send spans by OTLP over HTTP; its address and headers are OpenTelemetry's own variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = provider_of(OTLPSpanExporter(), service=service)
    telemetry.switch(
        provider.get_tracer("seckill"),
        ratio=ratio,
        flush=lambda: provider.force_flush(_FLUSH_MS),
    )
    return provider
