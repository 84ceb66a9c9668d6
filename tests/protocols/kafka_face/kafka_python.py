"""kafka-python's message classes by name. Importing them warns about a function of Python that they use."""

import importlib
import inspect
import warnings
from typing import Any


def message_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        families = [
            importlib.import_module(f"kafka.protocol.{name}") for name in ("admin", "consumer", "metadata", "producer")
        ]
    return {name: value for family in families for name, value in vars(family).items() if inspect.isclass(value)}
