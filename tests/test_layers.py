"""The layers of the design hold: contracts over the import graph, and what the pure layers may not touch at all."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "oncelog"

PURE_LAYERS = ("core", "protocols")

BANNED_IN_PURE_LAYERS = frozenset(
    # I/O, clock, randomness, concurrency, logging: the core takes values and returns values.
    "_thread asyncio concurrent ctypes fcntl http io logging mmap multiprocessing os pathlib queue random secrets "
    "select selectors shutil signal socket ssl subprocess tempfile threading time urllib uuid uvloop lmdb".split()
)

CLIENT_COLUMN = ("client", "forward", "spark", "pipelines")

# What runs at a client or in a Spark executor: the record codec and the leaves it stands on.
OPEN_TO_CLIENT_COLUMN = (
    "oncelog.client",
    "oncelog.core.batch",
    "oncelog.core.batch_arrow",
    "oncelog.core.facts",  # what a record of a fact topic says
    "oncelog.core.record",
    "oncelog.errors",
    "oncelog.forward",
    "oncelog.limits",
    "oncelog.pipelines",
    "oncelog.spark",
)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, at any depth and under any condition."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            # `from oncelog.core import batch` names a module, `from oncelog.core.batch import encode` does not:
            # both readings are given, the caller looks at prefixes.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def banned_imports(source: str) -> list[tuple[int, str]]:
    return [(line, name) for line, name in imports(source) if name.split(".")[0] in BANNED_IN_PURE_LAYERS]


def closed_to_client_column(source: str) -> list[tuple[int, str]]:
    return [
        (line, name)
        for line, name in imports(source)
        if name.split(".")[0] == "oncelog"
        and not any(name == allowed or name.startswith(f"{allowed}.") for allowed in OPEN_TO_CLIENT_COLUMN)
    ]


def modules_of(layers: tuple[str, ...]) -> list[Path]:
    return sorted(path for layer in layers for path in (PACKAGE / layer).rglob("*.py"))


def lint_imports(config: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", str(config), "--no-cache"]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, check=False)


def test_contracts_between_the_layers_are_kept() -> None:
    result = lint_imports(ROOT / "pyproject.toml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_pure_layers_import_nothing_that_does_io_or_knows_the_time() -> None:
    modules = modules_of(PURE_LAYERS)
    assert modules, "no module of core found: this test would pass on anything"
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules
        for line, name in banned_imports(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_client_column_imports_of_core_only_the_record_codec() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules_of(CLIENT_COLUMN)
        for line, name in closed_to_client_column(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path",
        "import struct, time",
        "from time import monotonic_ns",
        "def later():\n    import random",
        "if False:\n    from asyncio import Future",
    ],
)
def test_scan_finds_a_banned_import_wherever_it_stands(source: str) -> None:
    assert banned_imports(source)


@pytest.mark.parametrize("source", ["import struct", "from oncelog.core.time import x", "text = 'import os'"])
def test_scan_lets_a_pure_import_pass(source: str) -> None:
    assert not banned_imports(source)


@pytest.mark.parametrize(
    ("source", "closed"),
    [
        ("from oncelog.core.batch import encode", False),
        ("from oncelog.core import batch", False),
        ("from oncelog.core import state", True),
        ("import oncelog.engine.engine", True),
        ("from oncelog.core.batches import x", True),
    ],
)
def test_client_column_scan_tells_the_codec_from_the_rest_of_core(source: str, closed: bool) -> None:
    assert bool(closed_to_client_column(source)) is closed


# Each file breaks exactly one rule of the design; the contracts in pyproject.toml must name it.
VIOLATIONS = {
    "core/state.py": "import oncelog.storage.disk",
    "storage/disk.py": "import oncelog.engine.gate",
    "engine/gate.py": "import oncelog.servers.listener",
    "servers/listener.py": "import oncelog.cli.main",
    "protocols/http/session.py": "import oncelog.storage.disk",
    "protocols/kafka/session.py": "import oncelog.engine.gate",
    "protocols/nats/session.py": "import oncelog.protocols.http.session",
    "engine/follow.py": "import oncelog.protocols.http.session",
    "client/reader.py": "import oncelog.engine.gate",
    "spark/source.py": "import oncelog.storage.disk",
    "pipelines/landing.py": "import oncelog.servers.listener",
    "servers/kafka/server.py": "import oncelog.client.reader",
    "servers/nats/server.py": "import oncelog.servers.http.server",
    "cli/serve.py": "import oncelog.testing.sim_disk",
    "limits/http.py": "import oncelog.errors",
    "errors.py": "import oncelog.core.state",
    "helpers_of_mine/x.py": "import oncelog.limits",
}


@pytest.fixture
def sound_package(tmp_path: Path) -> Path:
    """A package named oncelog with every layer and no import, beside the contracts of pyproject.toml."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    modules = [name for name in VIOLATIONS if not name.startswith("helpers")] + [
        "cli/main.py",
        "testing/sim_disk.py",
        "servers/http/server.py",
    ]
    for name in modules:
        path = tmp_path / "oncelog" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def lint_copy(root: Path) -> subprocess.CompletedProcess[str]:
    # Started from the copy's root with -c, the copy comes before the installed package on sys.path.
    program = "from importlinter import cli; raise SystemExit(cli.lint_imports(no_cache=True))"
    return subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)


def test_contracts_pass_a_sound_package(sound_package: Path) -> None:
    result = lint_copy(sound_package)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", VIOLATIONS)
def test_contracts_bite_when_a_layer_is_crossed(sound_package: Path, name: str) -> None:
    path = sound_package / "oncelog" / name
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(VIOLATIONS[name] + "\n")
    result = lint_copy(sound_package)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout
