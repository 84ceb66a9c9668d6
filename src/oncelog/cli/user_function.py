"""A function of the user's own, by the name that `--function` has for it.

The verb looks for the function before Spark starts, so that a wrong name ends it at once. It loads the file when the
pipeline calls the function, which is after the session is there: a module may then make user-defined functions where it
is loaded. The file and the modules beside it travel to the workers by value, since no worker needs to have them.

The user's code may raise any exception, while it is loaded or when it is called. The verb reports it in one line with
its type and text.
"""

import ast
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
    """`package.module:name` or `path/to/file.py:name`, as a function that loads it. Ends the verb where there is
    surely no such function."""
    home, sign, name = text.rpartition(":")
    if not sign or not home or not name:
        raise typer.BadParameter(f"{text!r} is not MODULE:NAME or FILE.py:NAME", param_hint="--function")
    if home.endswith(".py"):
        _check_file(home, name)
    else:
        sys.path.insert(0, "")
        _check_module(home, name)
    return _failing_in_one_line(home, name, text)


def _check_file(home: str, name: str) -> None:
    """The file is there, is Python, and says the name somewhere at its top."""
    try:
        tree = ast.parse(Path(home).read_bytes(), home)
    except (OSError, SyntaxError, ValueError) as error:
        end(exits.USAGE, f"--function: cannot load {home}: {_told(error)}")
    # A module may also answer for names by a function of its own.
    if not any(_binds(statement, wanted) for statement in tree.body for wanted in (name, "__getattr__")):
        end(exits.USAGE, f"--function: {home} has no function {name!r}")


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement at the top of a module may give the name a meaning. If the name is bound to something else
    than a function, the call says so."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return statement.name == name
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return any(alias.name == "*" or (alias.asname or alias.name) == name for alias in statement.names)
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(statement)) or any(
        _binds(inner, name) for inner in ast.iter_child_nodes(statement) if isinstance(inner, ast.stmt)
    )


def _check_module(home: str, name: str) -> None:
    """There is such a module, and its source says the name. The packages around it are loaded to know that."""
    try:
        found = importlib.util.find_spec(home)
    # Any class at all, as it is their code, and SystemExit, as a script may end itself.
    except (Exception, SystemExit) as error:
        end(exits.USAGE, f"--function: cannot load {home}: {_told(error)}")
    if found is None:
        end(exits.USAGE, f"--function: cannot load {home}: there is no such module")
    if found.origin is not None and found.origin.endswith(".py"):
        _check_file(found.origin, name)


def _module(home: str) -> ModuleType:
    """The module, and with it all modules of its folder that it imports, for the workers by value."""
    before = set(sys.modules)
    if home.endswith(".py"):
        folder = Path(home).resolve().parent
        sys.path.insert(0, str(folder))
        spec = importlib.util.spec_from_file_location(Path(home).stem, home)
        assert spec is not None, "a name that ends in .py has a loader"
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Dataclasses and pickles look for their module there.
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(home)
        folder = Path(getattr(module, "__file__", None) or ".").resolve().parent
        before -= {name for name in before if name == home.partition(".")[0] or name.startswith(f"{home}.")}
    loaded_now = [module, *(sys.modules[name] for name in set(sys.modules) - before)]
    _send_by_value([found for found in loaded_now if _is_beside(found, folder)])
    return module


def _is_beside(module: ModuleType, folder: Path) -> bool:
    """Whether the module lies in the folder or below it. Installed packages stay what workers have installed."""
    file = getattr(module, "__file__", None)
    if not file or "site-packages" in Path(file).parts:
        return False
    return Path(file).resolve().is_relative_to(folder)


def _send_by_value(modules: list[ModuleType]) -> None:
    if importlib.util.find_spec("pyspark") is None:
        return
    from pyspark import cloudpickle

    for module in modules:
        if module.__name__ in sys.modules:
            cloudpickle.register_pickle_by_value(module)


def _failing_in_one_line(home: str, name: str, text: str) -> Function:
    def called(topics: dict[str, Any]) -> Any:
        from pyspark.errors import PySparkException

        from oncelog.pipelines.running import PipelineFailed, PipelineRefused

        try:
            function = getattr(_module(home), name, None)
        except (Exception, SystemExit) as error:
            raise PipelineRefused(f"--function: cannot load {home}: {_told(error)}") from error
        if not callable(function):
            raise PipelineRefused(f"--function: {home} has no function {name!r}")
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
