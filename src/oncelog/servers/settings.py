"""What a server can be told: every setting with its default, its bounds and its meaning.

Each field says its bounds and its meaning once, in its `Meta`; the check and `docs/config.md` both read them there.
Nothing is guessed: an unknown key, a value of another type or out of bounds, a file that is no TOML are refused
(`SettingsInvalid`), with the file, the key, what was given and what is allowed. Nothing here touches the network or
the data directory.
"""

import re
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta

from oncelog import limits
from oncelog.core import facts
from oncelog.core.txn import TxnTimeouts
from oncelog.engine import engine
from oncelog.engine.open import SEGMENT_BYTES_IN_MEMORY
from oncelog.errors import OncelogError
from oncelog.limits import KIB, MIB
from oncelog.servers.bsfg_settings import BsfgSettings
from oncelog.servers.face_settings import HOUR_MS, MINUTE_MS, FaceSettings, parse_address
from oncelog.servers.faces import FACES, FaceKind, resolved
from oncelog.servers.peers import PeerSettings

TEXT_CHARACTERS_MAX: Final = 400

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
    hold_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=HOUR_MS,
            description="How long a write waits while the index or the next segment is not ready; then it is 503, and "
            "not written",
        ),
    ] = limits.HOLD_MS
    checkpoint_bytes: Annotated[
        int,
        Meta(
            ge=16 * KIB,
            le=limits.INDEX_LAG_BYTES_MAX,
            description="Journal bytes between two checkpoints of the index: about what a restart replays",
        ),
    ] = limits.CHECKPOINT_BYTES
    cache_bytes: Annotated[
        int,
        Meta(
            ge=1 * MIB,
            le=64 * 1024 * MIB,
            description="Memory for rows that the index has as well (streams, producers, consumers, …), of all tables "
            "together, as estimated. What is newer than the index comes on top",
        ),
    ] = limits.ROWS_CACHED_BYTES


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
    bsfg: BsfgSettings = BsfgSettings()
    faces: dict[str, FaceSettings] = {}
    """The settings of every face, by its name, in the order of the list of faces."""
    peer: tuple[PeerSettings, ...] = ()

    @property
    def engine(self) -> engine.Settings:
        return engine.Settings(
            self.storage.segment_bytes,
            self.storage.checkpoint_bytes,
            self.transactions.timeouts,
            clock_settle_ms=self.clock.settle_ms,
            clock_jump_max_ms=self.clock.jump_max_ms,
            cache_bytes=self.storage.cache_bytes,
            hold_ms=self.storage.hold_ms,
            accept_clock=self.clock.accept,
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
    "bsfg": BsfgSettings,
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


def spelled(value: object) -> str:
    """A value as the file would say it, cut if it is long."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | Path):
        text = msgspec.json.encode(str(value)).decode()  # TOML's escapes, and one line whatever is in it
    elif isinstance(value, tuple):
        text = "[" + ", ".join(spelled(each) for each in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= GIVEN_CHARACTERS_MAX else text[:GIVEN_CHARACTERS_MAX] + "…"
