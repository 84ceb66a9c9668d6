"""Write docs/config.md from src/oncelog/servers/settings.py: each setting with its default, its range and its meaning.

The structs say it once, this copies it. `tests/cli/test_config.py` fails when the page is stale.
"""

from pathlib import Path

import msgspec

from oncelog.servers.settings import (
    ARRAY_SETTINGS,
    ARRAYS,
    FACE_SETTINGS,
    FORMS,
    SERVER_TABLES,
    SETTINGS,
    Setting,
    declared,
    spelled,
)
from tools.limits_doc import spell

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "config.md"
COMMAND = "make docs"

HEADER = f"""\
# Settings

Every setting of a server. Written by `{COMMAND}` from the settings classes in `src/oncelog/servers`.

A setting comes from the command line, else from the environment, else from the file, else it has its default:

| source | example |
|---|---|
| command line | `--data`, `--zone`, `--<face> HOST:PORT`, `--no-<face>`; any other key as `--set http.idle_ms=60000` |
| environment | `ONCELOG_HTTP_IDLE_MS=60000`: `ONCELOG_`, then the key in capitals with `_` for the dot |
| file | `oncelog serve --config FILE.toml`, below |

`oncelog config show` prints every setting with its value and its source. One of `data` and `in_memory` must be given.
An unknown key, another type or a value out of range is refused at the start, with its source, the value and what is
allowed.

Names end in their unit: `_ms` are milliseconds, `_bytes` bytes, a rate is bytes per second. Bounds that cannot be set
are in [limits.md](limits.md).
"""

TITLES = {"": "The log"} | {name: f"`[{name}]`" for name in (*FACE_SETTINGS, *SERVER_TABLES)}

TYPES = {bool: "true or false", int: "whole number", str: "text", Path: "path", tuple: "list of texts"}


def range_of(setting: Setting) -> str:
    if setting.kind is int:
        least, most = setting.meta.ge, setting.meta.le
        bounds = f"{spell(setting.key.upper(), least)} to {spell(setting.key.upper(), most)}"
        return bounds + (f", a multiple of {setting.meta.multiple_of}" if setting.meta.multiple_of else "")
    if setting.form is FORMS["address"]:
        return "HOST:PORT"
    return str(setting.meta.title) if setting.meta.pattern is not None else ""


def default_of(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return "must be given"
    if setting.default in (None, ()):
        return "none"
    if setting.kind is int:
        return spell(setting.key.upper(), setting.default)
    return f"`{spelled(setting.default)}`"


def row(setting: Setting) -> str:
    name = setting.key.rpartition(".")[2]
    meaning = str(setting.meta.description)
    kind = TYPES[setting.kind] if setting.meta.pattern is None else "text"
    return f"| `{name}` | {kind} | {default_of(setting)} | {range_of(setting)} | {meaning} |"


def array_rows(name: str) -> str:
    """What one table of an array has."""
    rows = [row(setting) for setting in ARRAY_SETTINGS[name].values()]
    return "\n".join(rows)


def example() -> str:
    """A file that says every default, so that a copy of it changes nothing but where the data is."""
    lines = ['data = "/var/lib/oncelog"', "# in_memory = true"]
    table = ""
    for setting in declared():
        of, _, name = setting.key.rpartition(".")
        if not of:
            continue
        if of != table:
            lines += ["", f"[{of}]"]
            table = of
        if setting.default is None:
            continue
        value = f"{setting.default:_}" if setting.kind is int else spelled(setting.default)
        lines.append(f"{name} = {value}")
    return "\n".join(lines) + "\n"


def render() -> str:
    """The whole page."""
    page = HEADER
    for table, title in TITLES.items():
        rows = [row(setting) for key, setting in SETTINGS.items() if key.rpartition(".")[0] == table]
        page += f"\n## {title}\n\n| key | type | default | range | meaning |\n|---|---|---|---|---|\n"
        page += "\n".join(rows) + "\n"
    for name, struct in ARRAYS.items():
        page += f"\n## `[[{name}]]`\n\n{' '.join((struct.__doc__ or '').split())} Only in a file.\n\n"
        page += f"| key | type | default | range | meaning |\n|---|---|---|---|---|\n{array_rows(name)}\n"
    return page + f"\n## A whole file\n\nEvery default, written out.\n\n```toml\n{example()}```\n"


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}")
