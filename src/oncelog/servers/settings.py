"""What a server is started with: a TOML file, overridden by the command line, over the defaults here.

Each field says its bounds and its meaning once, in its `Meta`; the check and `docs/config.md` both read them there.
Nothing is guessed: an unknown key, a value of another type or out of bounds, a file that is no TOML are refused
(`SettingsInvalid`), with the file, the key, what was given and what is allowed. Nothing here touches the network or
the data directory.
"""

import difflib
import re
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta

from oncelog import limits
from oncelog.core import facts
from oncelog.core.txn import TxnTimeouts
from oncelog.engine import engine
from oncelog.engine.open import SEGMENT_BYTES_IN_MEMORY
from oncelog.errors import OncelogError
from oncelog.limits import KIB, MIB
from oncelog.servers.face_settings import MINUTE_MS, FaceSettings, parse_address
from oncelog.servers.faces import FACES, FaceKind, resolved
from oncelog.servers.peers import PeerSettings

TEXT_CHARACTERS_MAX: Final = 400

COMMAND_LINE: Final = "command line"
GIVEN_CHARACTERS_MAX: Final = 60


class SettingsInvalid(OncelogError):
    """A setting cannot be used: says where it was given, its key, what was given and what would be allowed."""

    def __init__(self, source: str, key: str, problem: str, *, given: object = UNSET, allowed: str = "") -> None:
        self.source = source
        self.key = key
        self.problem = problem
        self.given = given
        self.allowed = allowed
        place = f"{source}: {key}" if key else source
        place += f" = {spelled(given)}" if given is not UNSET else ""
        super().__init__(f"{place}: {problem}" + (f" (allowed: {allowed})" if allowed else ""))


ADDRESS_ALLOWED: Final = (
    "HOST:PORT, as in 127.0.0.1:4437, localhost:0 or [::1]:4437; port 0 to 65,535, 0 is any free one"
)


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The journal and its index."""

    segment_bytes: Annotated[
        int,
        Meta(
            ge=limits.SEGMENT_BYTES_MIN,
            le=4096 * MIB,
            multiple_of=limits.FRAME_ALIGN_BYTES,
            description="One file of a new journal; an existing journal keeps its size. Below 8 MiB the largest batch "
            f"shrinks with it. In memory the default is {SEGMENT_BYTES_IN_MEMORY // MIB} MiB",
        ),
    ] = limits.SEGMENT_BYTES_DEFAULT
    checkpoint_bytes: Annotated[
        int,
        Meta(
            ge=16 * KIB,
            le=limits.INDEX_LAG_BYTES_MAX,
            description="Journal bytes between two checkpoints of the index: about what a restart replays",
        ),
    ] = limits.CHECKPOINT_BYTES


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long transactions may take, and what becomes of one that took too long."""

    check_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=10 * MINUTE_MS,
            description="How often the server looks for transactions that have timed out: one ends within its timeout "
            "plus this",
        ),
    ] = limits.TXN_CHECK_INTERVAL_MS
    write_abort_markers: Annotated[
        bool,
        Meta(
            description="Write abort markers for a transaction that timed out. Without them its records are hidden all "
            "the same, but a Kafka client that reads committed data sees no marker"
        ),
    ] = True
    fence_on_timeout: Annotated[
        bool,
        Meta(
            description="Fence the producer of a transaction that timed out. Without it the producer keeps its epoch, "
            "and its late writes to that transaction are refused"
        ),
    ] = True
    min_timeout_ms: Annotated[
        int,
        Meta(
            ge=limits.TXN_TIMEOUT_MS_MIN,
            le=limits.TXN_TIMEOUT_MS_MAX,
            description="The shortest timeout of a transaction; a shorter one that a client asks for is raised to it",
        ),
    ] = limits.TXN_TIMEOUT_MS_MIN
    max_timeout_ms: Annotated[
        int,
        Meta(
            ge=limits.TXN_TIMEOUT_MS_MIN,
            le=limits.TXN_TIMEOUT_MS_MAX,
            description="The longest timeout of a transaction; a longer one that a client asks for is lowered to it",
        ),
    ] = limits.TXN_TIMEOUT_MS_MAX

    @property
    def timeouts(self) -> TxnTimeouts:
        return TxnTimeouts(
            self.check_interval_ms,
            self.write_abort_markers,
            self.fence_on_timeout,
            min(self.min_timeout_ms, self.max_timeout_ms),
            self.max_timeout_ms,
        )


class ClockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the log's time follows the clock of the machine."""

    settle_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=24 * 60 * MINUTE_MS,
            description="How long the machine's clock must stay ahead before the log is set forward to it",
        ),
    ] = limits.CLOCK_SETTLE_MS
    jump_max_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=10 * 365 * 24 * 60 * MINUTE_MS,
            description="How far the log may be set forward at once. A start with a clock further ahead is refused",
        ),
    ] = limits.CLOCK_JUMP_MAX_MS
    accept: Annotated[
        bool, Meta(description="Start also with a clock that is further ahead: `--accept-clock`, for one start")
    ] = False


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. Either `data` or `in_memory` is given: nobody's records go to a place that was guessed."""

    data: Annotated[
        Path | None,
        Meta(description="The data directory, made if it is missing; relative to where the server is started"),
    ] = None
    in_memory: Annotated[
        bool, Meta(description="Keep everything in memory: nothing survives the process. Instead of `data`")
    ] = False
    zone: Annotated[
        str,
        Meta(
            pattern=facts.ZONE_PATTERN,
            title=f"1 to {facts.ZONE_CHARACTERS_MAX} letters, digits, '.', '_', '-'; the first a letter or digit",
            description="The name of this zone (BSFG): facts from here name it, and peers know the server by it",
        ),
    ] = "local"
    storage: StorageSettings = StorageSettings()
    transactions: TransactionSettings = TransactionSettings()
    clock: ClockSettings = ClockSettings()
    faces: dict[str, FaceSettings] = {}
    """The settings of every face, by its name, in the order of the list of faces."""
    peer: tuple[PeerSettings, ...] = ()

    @property
    def engine(self) -> engine.Settings:
        return engine.Settings(
            self.storage.segment_bytes,
            self.storage.checkpoint_bytes,
            self.transactions.timeouts,
            self.clock.settle_ms,
            self.clock.jump_max_ms,
            self.clock.accept,
        )


# --- what there is ---------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """What a text must look like."""

    check: Callable[[str], object]
    """Raises ValueError, which says what is wrong."""
    allowed: str


def _check_text(text: str) -> None:
    if not text or not text.isprintable() or len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError("is empty, too long or not printable")


def _check_pattern(pattern: str, text: str) -> None:
    if re.fullmatch(pattern, text) is None:
        raise ValueError("has another form")


FORMS: Final = {
    "address": Form(parse_address, ADDRESS_ALLOWED),
    "": Form(_check_text, f"text of 1 to {TEXT_CHARACTERS_MAX} printable characters"),
}


class Setting(NamedTuple):
    """One key, as its struct declares it."""

    key: str
    kind: type
    """bool, int, str, Path, or tuple of str."""
    default: object
    meta: Meta

    @property
    def form(self) -> Form:
        """Of a text, or of each text in a list."""
        pattern = self.meta.pattern
        if pattern is not None:
            return Form(partial(_check_pattern, pattern), str(self.meta.title))
        return FORMS[(self.meta.extra or {}).get("form", "")]

    @property
    def allowed(self) -> str:
        if self.kind is bool:
            return "true or false"
        if self.kind is Path:
            return "a path, in quotes"
        if self.kind is tuple:
            return f"a list, each {self.form.allowed}"
        if self.kind is str:
            return self.form.allowed
        bounds = f"a whole number, {self.meta.ge:,} to {self.meta.le:,}"
        return bounds + (f", a multiple of {self.meta.multiple_of}" if self.meta.multiple_of else "")


def face_settings_class(kind: FaceKind) -> type[FaceSettings]:
    """The settings class that the list of faces names."""
    found = resolved(kind.settings)
    assert isinstance(found, type)
    assert issubclass(found, FaceSettings)
    return found


SERVER_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "storage": StorageSettings,
    "transactions": TransactionSettings,
    "clock": ClockSettings,
}
"""The tables that belong to no face, by their names: fields of ServerSettings. A table more is one line here."""

ARRAYS: Final[dict[str, type[msgspec.Struct]]] = {"peer": PeerSettings}
"""Arrays of tables, `[[name]]` in a file: fields of ServerSettings. The command line cannot give them."""

FACE_SETTINGS: Final = {kind.name: face_settings_class(kind) for kind in FACES}


def declared() -> Iterator[Setting]:
    """Every key there is, table by table."""
    yield from _declared_by(ServerSettings, "")
    for name, struct in FACE_SETTINGS.items():
        yield from _declared_by(struct, f"{name}.")
    for name, table in SERVER_TABLES.items():
        yield from _declared_by(table, f"{name}.")


def _declared_by(struct: type[msgspec.Struct], prefix: str) -> Iterator[Setting]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue  # a table, which the caller asks for by its own class
        kind, meta = get_args(hint)
        if get_origin(kind) in (Union, types.UnionType):
            kind = next(option for option in get_args(kind) if option is not types.NoneType)
        kind = get_origin(kind) or kind
        yield Setting(prefix + field.name, kind, field.default, meta)


SETTINGS: Final = {setting.key: setting for setting in declared()}
ARRAY_SETTINGS: Final = {
    name: {setting.key: setting for setting in _declared_by(struct, f"{name}.")} for name, struct in ARRAYS.items()
}
TABLES: Final = frozenset(key.partition(".")[0] for key in SETTINGS if "." in key)


# --- loading ---------------------------------------------------------------------------------------------------


def load(path: Path | None, overrides: Mapping[str, object]) -> ServerSettings:
    """The settings of the file, if there is one, with those of `overrides` over them.

    `overrides` has keys as `http.address`; it is what the command line says, so None stands for "not given".
    """
    chosen: dict[str, object] = {}
    if path is not None:
        chosen = _checked(str(path), _flat(str(path), _read(path)))
        _refuse_two_places(str(path), chosen)
    given = _checked(COMMAND_LINE, {key: value for key, value in overrides.items() if value is not None})
    _refuse_two_places(COMMAND_LINE, given)
    # The command line chose a place: the other one in the file gives way.
    if "data" in given:
        chosen.pop("in_memory", None)
    if given.get("in_memory"):
        chosen.pop("data", None)
    chosen |= given
    if chosen.get("data") is None and not chosen.get("in_memory"):
        source = str(path) if path is not None else COMMAND_LINE
        raise SettingsInvalid(source, "data", "where do the records go?", allowed="a directory, or in_memory = true")
    if chosen.get("in_memory"):
        chosen.setdefault("storage.segment_bytes", SEGMENT_BYTES_IN_MEMORY)
    return _built(chosen)


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


def _checked(source: str, flat: Mapping[str, object]) -> dict[str, object]:
    return {key: _check(source, key, value) for key, value in flat.items()}


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


def spelled(value: object) -> str:
    """A value as the file would say it, cut if it is long."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | Path):
        text = msgspec.json.encode(str(value)).decode()  # TOML's escapes, and one line whatever is in it
    else:
        text = str(value)
    return text if len(text) <= GIVEN_CHARACTERS_MAX else text[:GIVEN_CHARACTERS_MAX] + "…"
