"""Ready pipelines on Spark: bring data in, change it on the way, put it into a lake table, prove that it arrived.

Each function has a module of its own and is loaded when it is first used, so that importing this package costs nothing
and needs neither Spark nor Java. See `docs/pipelines.md`.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.pipelines.audit_result import AuditResult
    from oncelog.pipelines.auditing import audit
    from oncelog.pipelines.ingesting import Ingested, ingest
    from oncelog.pipelines.landing import land
    from oncelog.pipelines.ledger import Ledger
    from oncelog.pipelines.running import PipelineFailed, PipelineRefused, PipelineResult, Progress
    from oncelog.pipelines.sessions import session
    from oncelog.pipelines.transforming import transform

__all__ = [
    "AuditResult",
    "Ingested",
    "Ledger",
    "PipelineFailed",
    "PipelineRefused",
    "PipelineResult",
    "Progress",
    "audit",
    "ingest",
    "land",
    "session",
    "transform",
]

_HOMES: Final = {
    "AuditResult": "audit_result",
    "Ingested": "ingesting",
    "Ledger": "ledger",
    "PipelineFailed": "running",
    "PipelineRefused": "running",
    "PipelineResult": "running",
    "Progress": "running",
    "audit": "auditing",
    "ingest": "ingesting",
    "land": "landing",
    "session": "sessions",
    "transform": "transforming",
}
"""No module has the name of a function: Python would put the module in the function's place once it is imported."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
