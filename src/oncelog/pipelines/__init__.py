"""Ready pipelines on Spark: bring data in, change it on the way, put it into a lake table, prove that it arrived.

Each function has a module of its own and is loaded when it is first used, so that importing this package costs nothing
and needs neither Spark nor Java. See `docs/pipelines.md`.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.pipelines.audit import AuditResult, audit
    from oncelog.pipelines.ingest import Ingested, ingest
    from oncelog.pipelines.land import land
    from oncelog.pipelines.ledger import Ledger
    from oncelog.pipelines.running import PipelineFailed, PipelineRefused, PipelineResult, Progress
    from oncelog.pipelines.session import session
    from oncelog.pipelines.transform import transform

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
    "AuditResult": "audit",
    "Ingested": "ingest",
    "Ledger": "ledger",
    "PipelineFailed": "running",
    "PipelineRefused": "running",
    "PipelineResult": "running",
    "Progress": "running",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    # A function has the name of its module: from here on the name means the function.
    found = getattr(home, name)
    globals()[name] = found
    return found
