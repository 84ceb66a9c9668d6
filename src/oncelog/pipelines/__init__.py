"""Ready pipelines on Spark: bring data in, change it on the way, put it into a lake table, prove that it arrived.

Each function has a module of its own and is loaded when it is first used, so that importing this package costs nothing
and needs neither Spark nor Java. See `docs/pipelines.md`.
"""

import importlib
import sys
from types import ModuleType
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


_FUNCTIONS: Final = frozenset({"audit", "ingest", "land", "session", "transform"})
"""Each has the name of its module."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}"), name)


class _Package(ModuleType):
    """This package, in which the name of a function never comes to mean its module.

    Whoever imports `oncelog.pipelines.land` has Python put that module into the package as `land`, where the function
    is expected.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
