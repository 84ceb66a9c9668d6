"""The documents say what is: limits with their values, commands that exist, links that lead somewhere."""

import re
from pathlib import Path

import pytest

from oncelog import limits
from oncelog.cli import exits, machine
from oncelog.protocols.http import answers
from tools import limits_doc

ROOT = Path(__file__).resolve().parent.parent

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)
# `make test` in running text, and a line of a code block that starts with it; prose such as "make sure" is neither.
MAKE_COMMAND = re.compile(r"(?:`|^[ \t]*(?:\$ )?)make (?P<words>[a-z][^`\n#]*)", re.MULTILINE)


def pages() -> list[Path]:
    return sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


def constants() -> dict[str, object]:
    return {name: value for name, value in vars(limits).items() if name.isupper()}


# --- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", constants())
def test_limit_is_documented_with_its_value(name: str) -> None:
    value = constants()[name]
    spelled = f"{value:,}" if isinstance(value, int) else str(value)
    row = re.compile(rf"^\| `{name}` \| {re.escape(spelled)}[ |]", re.MULTILINE)
    assert row.search(limits_doc.PAGE.read_text()), f"{name} = {spelled} is not in docs/limits.md: {limits_doc.COMMAND}"


def test_limits_page_is_what_the_source_says() -> None:
    assert limits_doc.PAGE.read_text() == limits_doc.render(), f"docs/limits.md is stale: {limits_doc.COMMAND}"


def test_every_limit_gives_its_reason() -> None:
    sources = [path.read_text() for path in limits_doc.SOURCES.glob("*.py")]
    reasons = {name: reason for source in sources for _, name, reason in limits_doc.bounds_with_reasons(source)}
    silent = [name for name in constants() if not reasons.get(name) and name not in ("KIB", "MIB", "GIB")]
    assert not silent, f"a bound without a reason cannot be argued with: {silent}"


# --- commands --------------------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def documented_targets(text: str) -> set[str]:
    """`make check test ROUNDS=3` names two targets. A listing such as `make setup | run` names each of them."""
    found: set[str] = set()
    for match in MAKE_COMMAND.finditer(text):
        for word in re.split(r"[\s|]+", match["words"].strip()):
            if not re.fullmatch(r"[a-z]+", word):
                break  # a variable, an option, or prose after the command
            found.add(word)
    return found


def code_of(page: str) -> str:
    """Code blocks and code spans of a page: prose may say "make sure"."""
    fences = [match[0] for match in FENCE.finditer(page)]
    spans = re.findall(r"`[^`\n]+`", FENCE.sub("", page))
    return "\n".join(fences + spans)


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_make_commands_in_the_documents_exist(page: Path) -> None:
    missing = documented_targets(code_of(page.read_text())) - make_targets()
    assert not missing, f"{page.name} names make targets that do not exist: {sorted(missing)}"


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    silent = [target for target in make_targets() if not re.search(rf"^{target}:.*## \w", makefile, re.MULTILINE)]
    assert not silent, silent


def test_targets_are_found_in_blocks_and_spans_but_not_in_prose() -> None:
    page = "We make sure.\n\n```\nmake setup\n$ make crash ROUNDS=3   # long\n```\nThen `make check test`.\n"
    assert documented_targets(code_of(page)) == {"setup", "crash", "check", "test"}


# --- links -----------------------------------------------------------------------------------------------------


def anchors(page: str) -> set[str]:
    """Anchors as code hosts make them from headings: lower case, punctuation dropped, spaces to hyphens."""
    headings = [match["text"] for match in HEADING.finditer(FENCE.sub("", page))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = FENCE.sub("", page.read_text())
    broken: list[str] = []
    for match in LINK.finditer(text):
        path, _, anchor = match["target"].partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(match["target"])
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            broken.append(match["target"])
    return broken


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    assert not broken_links(page)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](#one-two) [b](page.md#one-two) [c](gone.md) [d](page.md#three)\n")
    assert broken_links(page) == ["gone.md", "page.md#three"]


# --- sizes -----------------------------------------------------------------------------------------------------


SERVICE = ROOT / "docs" / "guides" / "service.md"


def test_pages_say_how_much_room_a_new_log_takes() -> None:
    page = SERVICE.read_text()
    taken = (1 + limits.SPARES_WANTED) * limits.SEGMENT_BYTES_DEFAULT // limits.MIB
    assert f"a log takes {taken} MiB" in page
    assert f"wants room for {machine.FREE_BYTES_MIN // limits.MIB}." in page


# --- exit codes ------------------------------------------------------------------------------------------------

EXIT_CODES = re.compile(r"Exit codes: (?P<list>0 [^;(.]*)")


def test_exit_codes_are_listed_alike_and_all() -> None:
    lists = {
        page.name: " ".join(match["list"].split())
        for page in pages()
        for match in EXIT_CODES.finditer(page.read_text())
    }
    assert {SERVICE.name, "pipelines.md"} <= set(lists)
    assert len(set(lists.values())) == 1, lists
    listed = [int(entry.split()[0]) for entry in lists[SERVICE.name].split(", ") if entry[0].isdigit()]
    assert listed == sorted(code for name, code in vars(exits).items() if name.isupper())


# --- statuses of HTTP ------------------------------------------------------------------------------------------


def test_statuses_of_errors_are_listed_all_and_no_others() -> None:
    section = (
        (ROOT / "docs" / "protocols" / "http.md").read_text().partition("\n## Statuses\n")[2].partition("\n## ")[0]
    )
    cells = re.findall(r"^\| ([\d /]+) \|", section, re.MULTILINE)
    listed = [int(status) for cell in cells for status in cell.split(" / ")]
    assert sorted(listed) == [status for status in answers.PHRASES if status >= 400]


def test_every_status_that_has_a_phrase_is_sent() -> None:
    files = [*(ROOT / "src/oncelog/protocols/http").glob("*.py"), *(ROOT / "src/oncelog/servers/http").glob("*.py")]
    sent = "".join(path.read_text() for path in files if path.name not in ("answers.py", "openapi.py"))
    assert [status for status in answers.PHRASES if not re.search(rf"[(=, ]{status}\b", sent)] == []
