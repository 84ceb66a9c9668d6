"""What is compiled is the code beside it, all of it or none; and the package is the same from its sources alone."""

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from oncelog import limits
from oncelog.core import producer
from oncelog.core.flat import Stream
from oncelog.storage.index import interface
from tests.compiled_code import IS_COMPILED, is_stale, refuse_vain, run_from_source
from tools.compiled import COMPILED


def test_library_was_built_from_the_sources_beside_it() -> None:
    assert not is_stale()


@pytest.mark.parametrize("name", COMPILED)
def test_all_modules_are_compiled_or_none(name: str) -> None:
    module = importlib.import_module(f"oncelog.{name.replace('/', '.')}")
    assert str(module.__file__).endswith(".py") == (not IS_COMPILED)


def test_is_compiled_where_it_can_be() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is not None and os.environ.get("ONCELOG_PURE") != "1":
        assert IS_COMPILED, "there is a compiler, and setup.py has not used it"


FROM_SOURCE_TOO = (
    "engine/test_commit_loop",
    "engine/test_turns",
    "protocols/http/test_claims",
    "servers/test_alike",
    "storage/test_builder",
    "storage/test_entry_codec",
)
"""Beside the rules: what else of the compiled path is Python where there is no compiler."""


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled, so all tests run from the sources")
@pytest.mark.timeout(600)
def test_rules_and_codecs_hold_from_the_sources_too() -> None:
    """Where there is no compiler, this is what runs."""
    alike = [f"tests/{name}.py" for name in FROM_SOURCE_TOO]
    assert " passed" in run_from_source("tests/core", *alike)


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled, so everything can be replaced")
@pytest.mark.parametrize(
    ("target", "name"),
    [(producer, "judge"), (Stream, "stable"), (limits, "RUN_BYTES_MAX"), (interface, "WHOLE_EXTENT")],
)
def test_replacing_what_is_compiled_fails(target: object, name: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="mark the test from_source"):
        refuse_vain(target, name)


def test_sources_run_where_they_are_asked_for() -> None:
    ask = "import oncelog.core.flat as flat; print(flat.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", ask], env=os.environ | {"ONCELOG_PURE": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("flat.py")


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled, so everything can be replaced")
def test_guard_sees_through_names_and_removals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="from_source"):
        monkeypatch.setattr("oncelog.core.flat.Stream.stable", 7)
    with pytest.raises(pytest.fail.Exception, match="from_source"):
        monkeypatch.delattr("oncelog.core.producer.find_flaw")
    monkeypatch.setattr(limits, "PROOF_IDLE_MS", limits.PROOF_IDLE_MS)  # nobody compiled reads it
