"""Spans inside a service: nothing where nobody records, and no word of a request where somebody does."""

import json
import os
import subprocess
import sys
from typing import Any

from kbmesh_rpc.spans import current_context, link_to, span
from opentelemetry import trace

RECORDED = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kbmesh_rpc.spans import current_context, link_to, span

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("test")
with tracer.start_as_current_span("other"):
    other = current_context()
with tracer.start_as_current_span("call"):
    link_to(other)
    with span("outer", kind="client", db__system__name="qdrant", kbmesh__points=3):
        try:
            with span("inner"):
                raise ValueError("the merger is off")
        except ValueError:
            pass
spans = {each.name: each for each in exporter.get_finished_spans()}
print(json.dumps({
    "names": list(spans),
    "parents": {name: each.parent and each.parent.span_id for name, each in spans.items()},
    "ids": {name: each.context.span_id for name, each in spans.items()},
    "outer": dict(spans["outer"].attributes),
    "kind": spans["outer"].kind.name,
    "inner": dict(spans["inner"].attributes),
    "status": [spans["inner"].status.status_code.name, spans["inner"].status.description],
    "events": len(spans["inner"].events),
    "links": [link.context.span_id for link in spans["call"].links],
}))
"""

CONFIGURED = """
import re, sys
from kbmesh_rpc.telemetry import configure_tracing
configure_tracing("http://127.0.0.1:9", "chunker")
print(any(re.match("opentelemetry.(sdk|exporter)", name) for name in sys.modules))
"""


def ran(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


def test_nothing_is_made_where_nobody_records() -> None:
    with span("stage", kbmesh__points=1) as made:
        assert made is trace.INVALID_SPAN
        made.set_attribute("kbmesh.outcome", "new")
        assert not current_context().is_valid
        link_to(current_context())


def test_a_span_knows_its_parent_and_an_error_by_its_class_alone() -> None:
    told: dict[str, Any] = json.loads(ran(RECORDED))
    ids, parents = told["ids"], told["parents"]
    assert parents == {"other": None, "call": None, "outer": ids["call"], "inner": ids["outer"]}
    assert told["outer"] == {"db.system.name": "qdrant", "kbmesh.points": 3}
    assert told["kind"] == "CLIENT"
    assert told["inner"] == {"error.type": "ValueError"}
    assert (told["status"], told["events"]) == (["ERROR", None], 0)
    assert told["links"] == [ids["other"]]
    assert "merger" not in json.dumps(told)


def test_opentelemetrys_settings_keep_the_sdk_from_being_loaded() -> None:
    assert ran(CONFIGURED) == "True\n"
    assert ran(CONFIGURED, OTEL_SDK_DISABLED="true") == "False\n"
    assert ran(CONFIGURED, OTEL_TRACES_EXPORTER="none") == "False\n"
