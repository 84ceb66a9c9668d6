"""The OpenAPI description of everything that is not the durable-streams protocol."""

from typing import Any, Final

DESCRIPTION: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "oncelog", "version": "1"},
    "paths": {},
}
