"""Which modules are compiled, and which sources that depends on: `python3 tools/compiled.py` lists them for make.

The compiled ones are the path of an append, from the bytes of a request to the entry and back, the same entry's replay
by the index builder, and the record-batch codec. mypyc writes the value of a constant into the code that uses it, so a
library is stale also when a module has changed that one of them imports.

Needs nothing but Python: setup.py and make ask before anything is installed.
"""

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMPILED = (
    "core/append",
    "core/apply",
    "core/batch",
    "core/batch_arrow",
    "core/columns",
    "core/flat",
    "core/memory",
    "core/message_id",
    "core/producer",
    "core/seen",
    "core/state",
    "core/touches",
    "engine/commit_loop",
    "engine/group",
    "engine/pacing/hold",
    "engine/intake",
    "engine/read_view",
    "engine/turn",
    "protocols/http/append_command",
    "protocols/http/template",
    "protocols/http/write_answers",
    "servers/counts",
    "servers/http/line",
    "storage/entry_codec",
    "storage/index/builder",
    "storage/index/places",
    "storage/replay",
)

LIBRARY = "oncelog.native"
"""What they are compiled into; each has a small extension beside its source that leads there."""

FINGERPRINT_PREFIX = "oncelog-sources-sha256:"


def compiled_sources() -> list[Path]:
    """The compiled modules, from the root of the project."""
    return [Path("src/oncelog") / f"{name}.py" for name in COMPILED]


def sources() -> list[Path]:
    """All that the library depends on, from the root of the project: the compiled modules and those they import."""
    found = set(compiled_sources())
    for source in compiled_sources():
        found.update(_imported(ast.parse((ROOT / source).read_text())))
    return sorted(found)


def _imported(tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "oncelog":
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                path = Path("src", *name.split(".")).with_suffix(".py")
                if (ROOT / path).is_file():
                    yield path
                elif (ROOT / path.with_suffix("") / "__init__.py").is_file():
                    # A package whose names come from its modules, as `limits`.
                    yield from (found.relative_to(ROOT) for found in (ROOT / path.with_suffix("")).glob("*.py"))


def fingerprint() -> str:
    """What a library carries that was compiled from the sources as they are now."""
    digest = hashlib.sha256()
    for source in sources():
        digest.update(f"{source}\n".encode())
        digest.update(hashlib.sha256((ROOT / source).read_bytes()).digest())
    return FINGERPRINT_PREFIX + digest.hexdigest()


if __name__ == "__main__":
    print(*sources())
