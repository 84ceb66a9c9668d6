"""A function of the user's own, by the name that `--function` has for it.

The user's code may raise any exception, while it is loaded or when it is called. The verb reports it in one line with
its type and text. It prints no traceback, since the failure is not ours.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from oncelog.cli import exits
from oncelog.cli.screen import end

Function = Callable[[dict[str, Any]], Any]


def loaded(text: str) -> Function:
    """`package.module:name` or `path/to/file.py:name`. Ends the verb where there is no such function."""
    home, sign, name = text.rpartition(":")
    if not sign or not home or not name:
        raise typer.BadParameter(f"{text!r} is not MODULE:NAME or FILE.py:NAME", param_hint="--function")
    try:
        module = _module(home)
    # Any class at all, as it is their code, and SystemExit, as a script may end itself.
    except (Exception, SystemExit) as error:
        end(exits.USAGE, f"--function: cannot load {home}: {_told(error)}")
    found = getattr(module, name, None)
    if not callable(found):
        end(exits.USAGE, f"--function: {home} has no function {name!r}")
    return _failing_in_one_line(found, text)


def _module(home: str) -> ModuleType:
    if not home.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(home)
    spec = importlib.util.spec_from_file_location(Path(home).stem, home)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look for their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _failing_in_one_line(function: Function, text: str) -> Function:
    def called(topics: dict[str, Any]) -> Any:
        from pyspark.errors import PySparkException

        from oncelog.pipelines.running import PipelineFailed, PipelineRefused

        try:
            return function(topics)
        except (PySparkException, PipelineFailed, PipelineRefused):
            raise  # told by the pipeline, as it is for SQL
        # Any class at all, as above.
        except (Exception, SystemExit) as error:
            raise PipelineFailed(f"{text} failed: {_told(error)}") from error

    return called


def _told(error: BaseException) -> str:
    return " ".join([f"{type(error).__name__}:", *str(error).split()]).removesuffix(":")
