"""Write docs/errors.md: every error code of every face, from the lists that the faces answer from."""

from itertools import groupby
from pathlib import Path

from oncelog.cli.explain import all_errors

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
COMMAND = "make docs"

HEADER = f"""\
# Errors

Every error code of every face, with its meaning and what to do. `oncelog explain CODE` prints one of them. Words in
angle brackets stand for the values of the case. Written by `{COMMAND}` from the code.
"""


def render() -> str:
    """The whole page."""
    page = HEADER
    for face, rows in groupby(all_errors(), key=lambda row: row.face):
        page += f"\n## {face}\n\n| Code | | Meaning | What to do |\n|---|---|---|---|\n"
        for row in rows:
            cells = (f"`{row.code}`", row.status, _cell(row.meaning), _cell(row.what_to_do))
            page += "| " + " | ".join(cells) + " |\n"
    return page


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}")
