"""Write docs/limits.md from src/oncelog/limits/: each bound with its value and its reason.

The source says it once, this copies it: sections are the `# --- name ---` comments of its modules, the reason of a
bound is the docstring under it. `tests/test_docs.py` fails when the page is stale.
"""

import ast
import re
from pathlib import Path

from oncelog import limits

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "oncelog" / "limits"
PAGE = ROOT / "docs" / "limits.md"
COMMAND = "make docs"

HEADER = f"""\
# Limits

Every bound that oncelog has, with its value and its reason. Written by `{COMMAND}` from `src/oncelog/limits/`.
"""

LAYERS = ["units", "core", "storage", "engine", "servers"]
"""The modules that come first; those of faces follow by name."""

SECTION_COMMENT = re.compile(r"# --- (?P<title>.+?) -+$")


def spell(name: str, value: object) -> str:
    """The exact value, and for bytes also the size that a person would say."""
    if isinstance(value, int) and not isinstance(value, bool):
        exact = f"{value:,}"
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if "BYTES" in name and value >= size and value % size == 0:
                return f"{exact} ({value // size} {unit})"
        return exact
    return str(value)


def bounds_with_reasons(source: str) -> list[tuple[int, str, str]]:
    """(line, name, reason) of every constant; a bare string right after an assignment is its reason."""
    body = ast.parse(source).body
    found: list[tuple[int, str, str]] = []
    for statement, follower in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        reason = ""
        if isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant):
            reason = " ".join(str(follower.value.value).split())
        found.append((statement.lineno, statement.target.id, reason))
    return found


def sections() -> dict[str, list[str]]:
    """The rows of every section, module by module in the order in which the package names them."""
    rows: dict[str, list[str]] = {}
    for module in LAYERS + sorted({path.stem for path in SOURCES.glob("*.py")} - {"__init__", *LAYERS}):
        source = (SOURCES / f"{module}.py").read_text()
        titles = {0: module}
        for line_number, line in enumerate(source.splitlines(), start=1):
            if match := SECTION_COMMENT.match(line):
                titles[line_number] = match["title"]
        for line_number, name, reason in bounds_with_reasons(source):
            title = titles[max(start for start in titles if start < line_number)]
            value = spell(name, getattr(limits, name))
            rows.setdefault(title, []).append(f"| `{name}` | {value} | {reason.replace('|', chr(92) + '|')} |")
    return rows


def render() -> str:
    """The whole page."""
    page = HEADER
    for title, rows in sections().items():
        heading = title[0].upper() + title[1:]
        page += f"\n## {heading}\n\n| bound | value | why |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    return page


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}")
