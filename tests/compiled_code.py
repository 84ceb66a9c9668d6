"""Tests that put something else in the place of code or constants, and compiled code, which would not notice.

mypyc calls functions and reads constants without looking their names up. A test that replaces one of them would pass
or fail for no reason, so it is marked `from_source` and runs in a process where nothing is compiled; one that is not
marked fails here.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import oncelog
from oncelog.core import flat
from tools.compiled import COMPILED, ROOT, compiled_sources, fingerprint

IS_COMPILED = not str(flat.__file__).endswith(".py")


def is_stale() -> bool:
    """Whether the library was compiled from other sources than those beside it."""
    libraries = list(Path(oncelog.__file__).parent.glob("native__mypyc*.so"))
    return IS_COMPILED and not any(fingerprint().encode() in library.read_bytes() for library in libraries)


def run_from_source(*tests: str) -> str:
    """Run tests in a process where nothing is compiled; returns pytest's closing line."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=inherited | {"ONCELOG_PURE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"from the sources:\n{done.stdout[-10_000:]}", pytrace=False)
    return done.stdout.splitlines()[-1]


def _constants_compiled_in() -> frozenset[tuple[str, str]]:
    """(module, name) of all that compiled modules take from modules that are not."""
    names: set[tuple[str, str]] = set()
    for source in compiled_sources():
        tree = ast.parse((ROOT / source).read_text())
        modules = {"limits": "oncelog.limits"}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog"):
                names.update((node.module or "", alias.name) for alias in node.names)
                modules.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                names.add((modules[node.value.id], node.attr))
    return frozenset(names)


CONSTANTS_COMPILED_IN = _constants_compiled_in()
MODULES = frozenset(f"oncelog.{name.replace('/', '.')}" for name in COMPILED)


class Guard:
    """Looks at whatever a test replaces by the means of pytest or of the standard library."""

    is_off = False
    """The test at hand is only set up here, and runs from the sources."""


def refuse_vain(target: object, name: str) -> None:
    """Fail if nobody would see the replacement."""
    is_vain = not Guard.is_off and (
        (isinstance(target, ModuleType) and target.__name__ in MODULES)
        or (isinstance(target, type) and "__mypyc_attrs__" in vars(target))
        or (isinstance(target, ModuleType) and name.isupper() and (target.__name__, name) in CONSTANTS_COMPILED_IN)
    )
    if is_vain:
        pytest.fail(f"{target!r:.80}.{name} is compiled: mark the test from_source", pytrace=False)


def guard_replacements() -> None:
    """From now on."""
    set_attribute, delete, enter = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.delattr, mock._patch.__enter__

    def look_at(target: Any, name: Any) -> None:
        if isinstance(target, str):
            owner, _, name = target.rpartition(".")
            target = resolve_name(owner)
        refuse_vain(target, name)

    def setattr_(patch: pytest.MonkeyPatch, target: Any, name: Any, *more: Any, **others: Any) -> None:
        look_at(target, name)
        set_attribute(patch, target, name, *more, **others)

    def delattr_(patch: pytest.MonkeyPatch, target: Any, *more: Any, **others: Any) -> None:
        look_at(target, more[0] if more else "")
        delete(patch, target, *more, **others)

    def entered(patch: Any) -> Any:
        refuse_vain(patch.getter(), patch.attribute)
        return enter(patch)

    pytest.MonkeyPatch.setattr = setattr_  # type: ignore[method-assign, assignment]
    pytest.MonkeyPatch.delattr = delattr_  # type: ignore[method-assign, assignment]
    mock._patch.__enter__ = entered  # type: ignore[method-assign]
