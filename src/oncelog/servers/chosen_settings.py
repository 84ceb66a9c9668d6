"""Where settings come from: the command line over the environment, over a TOML file, over the defaults.

Nothing is guessed: an unknown key, a value of another type or out of bounds, a file that is not TOML are refused
(`SettingsInvalid`), with the source, the key, what was given and what is allowed. Nothing here touches the network or
the data directory.
"""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from oncelog.engine.open import SEGMENT_BYTES_IN_MEMORY
from oncelog.servers.settings import (
    ARRAY_SETTINGS,
    ARRAYS,
    FACE_SETTINGS,
    SERVER_TABLES,
    SETTINGS,
    TABLES,
    ServerSettings,
    Setting,
    SettingsInvalid,
)

COMMAND_LINE: Final = "command line"
ENVIRONMENT: Final = "environment"
VARIABLE_PREFIX: Final = "ONCELOG_"


class Chosen(NamedTuple):
    """A value that somebody has chosen."""

    value: object
    source: str
    """The file, `ONCELOG_…` of the environment, or the command line."""


def load(
    path: Path | None, overrides: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> ServerSettings:
    """The settings of the file, if there is one, those of the environment over them, and those of `overrides` over all.

    `overrides` has keys as `http.address`; it is what the command line says, so None stands for "not given".
    """
    chosen = {key: given.value for key, given in choose(path, overrides, environment or {}).items()}
    if chosen.get("data") is None and not chosen.get("in_memory"):
        source = str(path) if path is not None else COMMAND_LINE
        raise SettingsInvalid(source, "data", "where do the records go?", allowed="a directory, or in_memory = true")
    if chosen.get("in_memory"):
        chosen.setdefault("storage.segment_bytes", SEGMENT_BYTES_IN_MEMORY)
    return _built(chosen)


def choose(path: Path | None, overrides: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, Chosen]:
    """What was chosen, and where: every key that does not have its default."""
    chosen: dict[str, Chosen] = {}
    for source, flat in (
        (str(path), {} if path is None else _flat(str(path), _read(path))),
        (ENVIRONMENT, from_environment(environment)),
        (COMMAND_LINE, {key: value for key, value in overrides.items() if value is not None}),
    ):
        given = {
            key: Chosen(_check(_named(source, key), key, value), _named(source, key)) for key, value in flat.items()
        }
        values = {key: one.value for key, one in given.items()}
        _refuse_two_places(source, values)
        # The stronger source chose a place: the other one of a weaker source gives way.
        if "data" in given:
            chosen.pop("in_memory", None)
        if values.get("in_memory"):
            chosen.pop("data", None)
        chosen |= given
    return chosen


def variable_of(key: str) -> str:
    """The variable of the environment that sets a key: ONCELOG_HTTP_IDLE_MS for http.idle_ms."""
    return VARIABLE_PREFIX + key.replace(".", "_").upper()


def from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """The settings among the variables. A variable that begins like a table of settings and names none is refused."""
    keys = {variable_of(key): key for key in SETTINGS}
    tables = tuple(variable_of(table) + "_" for table in TABLES)
    flat: dict[str, object] = {}
    for name, text in environment.items():
        key = keys.get(name)
        if key is not None:
            flat[key] = text if SETTINGS[key].kind in (str, Path) else parse_value(text)
        elif name.startswith(tables):
            near = difflib.get_close_matches(name, keys, n=1)
            problem = "there is no such setting" + (f", did you mean {near[0]}?" if near else "")
            raise SettingsInvalid(ENVIRONMENT, name, problem, given=text, allowed="the keys of docs/config.md")
    return flat


def parse_value(text: str) -> object:
    """A value as TOML says it; what is no TOML is text, so that addresses need no quotes."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    return document["value"] if len(document) == 1 else text


def _named(source: str, key: str) -> str:
    return variable_of(key) if source == ENVIRONMENT else source


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsInvalid(str(path), "", f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsInvalid(str(path), "", f"is not UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(str(path), "", f"is not TOML: {error}") from error


def _flat(source: str, document: dict[str, Any]) -> dict[str, object]:
    """`{"http": {"idle_ms": 1}}` as `{"http.idle_ms": 1}`. No key holds a table of its own."""
    flat: dict[str, object] = {}
    for name, value in document.items():
        if name in ARRAYS:
            flat[name] = _array(source, name, value)
        elif name not in TABLES:
            flat[name] = value
        elif isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            raise SettingsInvalid(source, name, "is a table", given=value, allowed=f"[{name}] and keys below it")
    return flat


def _array(source: str, name: str, value: object) -> tuple[msgspec.Struct, ...]:
    """The tables of an array, each checked."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise SettingsInvalid(
            source, name, "is an array of tables", given=value, allowed=f"[[{name}]] and keys below it"
        )
    known, struct = ARRAY_SETTINGS[name], ARRAYS[name]
    tables: list[msgspec.Struct] = []
    for number, table in enumerate(value, start=1):
        place = f"{name}[{number}]"
        given: dict[str, object] = {}
        for key, inner in table.items():
            setting = known.get(f"{name}.{key}")
            if setting is None:
                allowed = ", ".join(each.key.rpartition(".")[2] for each in known.values())
                raise SettingsInvalid(source, f"{place}.{key}", "there is no such key", given=inner, allowed=allowed)
            given[key] = _check_value(source, f"{place}.{key}", setting, inner)
        for setting in known.values():
            key = setting.key.rpartition(".")[2]
            if setting.default is msgspec.NODEFAULT and key not in given:
                raise SettingsInvalid(source, f"{place}.{key}", "is missing", allowed=setting.allowed)
        tables.append(struct(**given))
    return tuple(tables)


def _check(source: str, key: str, value: object) -> object:
    if key in ARRAYS:
        if source != COMMAND_LINE:
            return value  # `_flat` has checked it
        raise SettingsInvalid(source, key, "is an array of tables", given=value, allowed=f"[[{key}]] in a file")
    setting = SETTINGS.get(key)
    if setting is None:
        raise _unknown(source, key, value)
    return _check_value(source, key, setting, value)


def _check_value(source: str, key: str, setting: Setting, value: object) -> object:
    if setting.kind is Path:
        if not isinstance(value, str | Path):
            raise SettingsInvalid(source, key, "has another type", given=value, allowed=setting.allowed)
        if not str(value) or "\0" in str(value):
            raise SettingsInvalid(source, key, "is no path", given=value, allowed=setting.allowed)
        return Path(value)
    if setting.kind is tuple:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise SettingsInvalid(source, key, "is not a list of texts", given=value, allowed=setting.allowed)
        return tuple(_check_form(source, key, setting, text) for text in value)
    # A bool is an int to Python, not to whoever wrote the file.
    if type(value) is not setting.kind:
        raise SettingsInvalid(source, key, "has another type", given=value, allowed=setting.allowed)
    if isinstance(value, str):
        _check_form(source, key, setting, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        _check_bounds(source, setting, value)
    return value


def _check_form(source: str, key: str, setting: Setting, text: str) -> str:
    try:
        setting.form.check(text)
    except ValueError as error:
        raise SettingsInvalid(source, key, str(error), given=text, allowed=setting.allowed) from error
    return text


def _check_bounds(source: str, setting: Setting, value: int) -> None:
    meta = setting.meta
    assert meta.ge is not None
    assert meta.le is not None
    if not meta.ge <= value <= meta.le:
        raise SettingsInvalid(source, setting.key, "is out of range", given=value, allowed=setting.allowed)
    if meta.multiple_of is not None and value % meta.multiple_of:
        raise SettingsInvalid(source, setting.key, "is not a multiple", given=value, allowed=setting.allowed)


def _unknown(source: str, key: str, value: object) -> SettingsInvalid:
    table, _, name = key.rpartition(".")
    if isinstance(value, dict):
        near = difflib.get_close_matches(key, TABLES, n=1)
        allowed = ", ".join(f"[{known}]" for known in sorted(TABLES))
    else:
        # Right name, wrong table, is the likeliest mistake of all.
        near = [known for known in SETTINGS if known.rpartition(".")[2] == name]
        near += difflib.get_close_matches(key, SETTINGS, n=1)
        beside = [known.rpartition(".") for known in SETTINGS]
        allowed = ", ".join(known for of, _, known in beside if of == table)
    problem = "there is no such key" + (f", did you mean {near[0]}?" if near else "")
    return SettingsInvalid(source, key, problem, given=value, allowed=allowed)


def _refuse_two_places(source: str, chosen: Mapping[str, object]) -> None:
    if chosen.get("in_memory") and chosen.get("data") is not None:
        raise SettingsInvalid(source, "in_memory", "stands beside data", given=True, allowed="one of the two")


def _built(chosen: Mapping[str, object]) -> ServerSettings:
    def of(table: str) -> dict[str, Any]:
        return {key.removeprefix(table): value for key, value in chosen.items() if key.startswith(table)}

    top: dict[str, Any] = {key: value for key, value in chosen.items() if "." not in key}
    faces = {name: struct(**of(f"{name}.")) for name, struct in FACE_SETTINGS.items()}
    top |= {name: table(**of(f"{name}.")) for name, table in SERVER_TABLES.items()}
    return ServerSettings(**top, faces=faces)
