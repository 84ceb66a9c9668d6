"""The habits that a linter does not know: sizes, names, broad excepts, sleeping tests, leaks of a developer's machine.

Each rule is a function from a source to what is wrong with it, run over the tree by one test and shown to bite by
another. Commented-out code, prints and naive datetimes are ruff's.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE_FOLDERS = ("src", "tests", "bench", "examples", "tools")

LINE_COLUMNS_MAX = 120
MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70

# A name that says nothing collects everything.
NAMELESS_MODULES = frozenset({"common", "helpers", "misc", "utils", "util"})

# The one place that catches a bug of ours, to log it and exit; and the one that runs code of the user's, to tell what
# it raised and end.
MAY_CATCH_EVERYTHING = ("src/oncelog/servers/process.py", "src/oncelog/cli/user_function.py")

LEFTOVER_MARKER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~>-])/(?:root|home|Users|work|opt)/[\w.]")
ADDRESS = re.compile(r"://|--(?:index-url|extra-index-url|find-links|trusted-host)|@ ")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- rules -----------------------------------------------------------------------------------------------------


def long_module(source: str) -> Iterator[str]:
    if (lines := source.count("\n")) > MODULE_LINES_MAX:
        yield f"{lines}: module of {lines} lines, at most {MODULE_LINES_MAX}"


def long_lines(source: str) -> Iterator[str]:
    for number, line in enumerate(source.splitlines(), start=1):
        if len(line) > LINE_COLUMNS_MAX:
            yield f"{number}: line of {len(line)} columns, at most {LINE_COLUMNS_MAX}"


def long_functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def missing_docstring(source: str) -> Iterator[str]:
    if ast.get_docstring(ast.parse(source)) is None:
        yield "1: no docstring that says what the module owns"


def leftover_markers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := LEFTOVER_MARKER.search(token.string)):
            yield f"{token.start[0]}: {match[0]} left in a comment"


def broad_excepts(source: str) -> Iterator[str]:
    """Bare, `Exception`, and `BaseException` unless the handler ends by raising on (clean up, then let go)."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {expression.id if isinstance(expression, ast.Name) else None for expression in caught}
        raises_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if node.type is None or "Exception" in names or ("BaseException" in names and not raises_on):
            yield f"{node.lineno}: catches everything, so a bug goes on unseen"


def sleeps(source: str) -> Iterator[str]:
    """`time.sleep` in any spelling, and `asyncio.sleep` of anything but 0, which only gives way."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            if any(alias.name == "sleep" for alias in node.names):
                yield f"{node.lineno}: imports sleep"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sleep":
            continue
        gives_way = [ast.unparse(argument) for argument in node.args] == ["0"]
        if isinstance(node.func.value, ast.Name) and not (node.func.value.id == "asyncio" and gives_way):
            yield f"{node.lineno}: sleeps; wait for the event or inject the clock"


Rule = Callable[[str], Iterator[str]]

# Rule, the folders it holds in, and a source that breaks it.
RULES: list[tuple[Rule, tuple[str, ...], str]] = [
    (long_module, CODE_FOLDERS, "x = 1\n" * (MODULE_LINES_MAX + 1)),
    (long_lines, CODE_FOLDERS, "#" * (LINE_COLUMNS_MAX + 1)),
    (long_functions, ("src",), "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (missing_docstring, ("src",), "x = 1\n"),
    (leftover_markers, CODE_FOLDERS, "x = 1  # " + "TO" + "DO: later\n"),
    (broad_excepts, ("src", "tools"), "try:\n    f()\nexcept (OSError, Exception):\n    pass\n"),
    (sleeps, ("tests",), "import time\ntime.sleep(1)\n"),
]


@pytest.mark.parametrize(("rule", "folders", "_breaks"), RULES, ids=[rule.__name__ for rule, _, _ in RULES])
def test_tree_is_tidy(rule: Rule, folders: tuple[str, ...], _breaks: str) -> None:
    files = [
        path for path in python_files(*folders) if shown(path) not in MAY_CATCH_EVERYTHING or rule is not broad_excepts
    ]
    assert files
    # An empty file, such as the __init__.py of a test folder, owns nothing and needs to say nothing.
    sources = {path: source for path in files if (source := path.read_text())}
    found = [f"{shown(path)}:{wrong}" for path, source in sources.items() for wrong in rule(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("rule", "_folders", "breaks"), RULES, ids=[rule.__name__ for rule, _, _ in RULES])
def test_rule_bites(rule: Rule, _folders: tuple[str, ...], breaks: str) -> None:
    assert list(rule(breaks))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (broad_excepts, "try:\n    f()\nexcept BaseException:\n    close()\n    raise\n"),
        (broad_excepts, "try:\n    f()\nexcept (OSError, ValueError):\n    pass\n"),
        (sleeps, "async def f():\n    await asyncio.sleep(0)\n"),
        (leftover_markers, "marker = 'TO' 'DO'\n"),
        (long_functions, "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)),
    ],
)
def test_rule_lets_the_honest_case_pass(rule: Rule, source: str) -> None:
    assert not list(rule(source))


# --- the tree --------------------------------------------------------------------------------------------------


def test_every_module_has_a_name_that_says_something() -> None:
    found = [shown(path) for path in python_files(*CODE_FOLDERS) if path.stem.strip("_") in NAMELESS_MODULES]
    assert not found, f"name the idea instead: {found}"


def test_every_folder_of_the_package_is_a_package() -> None:
    # A folder without __init__.py is invisible to the layer contracts.
    folders = {path.parent for path in python_files("src")} - {ROOT / "src"}
    missing = sorted(shown(folder) for folder in folders if not (folder / "__init__.py").exists())
    assert not missing, f"no __init__.py in {missing}"


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-spark.txt"])
def test_constraints_hold_only_names_versions_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not ADDRESS.search(text)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pins = [line for line in lines if not line.startswith(" ")]
    assert pins
    for line in pins:
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.!+]+( ; .+)? \\", line), line
    for line in set(lines) - set(pins):
        assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    files = python_files(*CODE_FOLDERS) + sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md"))
    files += [
        ROOT / name
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-spark.txt", ".ci/run", ".gitignore")
    ]
    found = [
        f"{shown(path)}:{number}: {match[0]}…"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if (match := MACHINE_PATH.search(line))
    ]
    assert not found, "\n".join(found)


def test_package_refuses_to_run_without_assertions() -> None:
    result = subprocess.run([sys.executable, "-O", "-c", "import oncelog"], capture_output=True, text=True, check=False)
    assert result.returncode != 0, "python -O drops the assertions that the package relies on; it must refuse to start"
    assert "-O" in result.stderr
