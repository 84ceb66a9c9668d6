"""Settings: the file, the command line over it, and every way to be refused. The page about them says what is."""

import re
from pathlib import Path

import pytest

from oncelog import limits
from oncelog.engine.open import SEGMENT_BYTES_IN_MEMORY
from oncelog.servers.chosen_settings import choose, load, variable_of
from oncelog.servers.face_settings import Address, parse_address
from oncelog.servers.http.settings import HttpSettings
from oncelog.servers.settings import (
    FACE_SETTINGS,
    SETTINGS,
    ServerSettings,
    Setting,
    SettingsInvalid,
    StorageSettings,
)
from tools import config_doc

NUMBERS = [setting for setting in SETTINGS.values() if setting.kind is int]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "oncelog.toml"


def refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(SettingsInvalid) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}: ")
    return str(caught.value).removeprefix(f"{file}: ")


def line(key: str, value: object) -> str:
    """One setting as a file, with a place for the data so that only it can be refused."""
    table, _, name = key.rpartition(".")
    return 'data = "d"\n' + (f"[{table}]\n" if table else "") + f"{name} = {value}\n"


# --- what holds ------------------------------------------------------------------------------------------------


def test_defaults_hold_when_only_the_place_is_given() -> None:
    settings = load(None, {"data": Path("d")})
    assert settings == ServerSettings(data=Path("d"), faces={name: struct() for name, struct in FACE_SETTINGS.items()})
    assert settings.faces["http"].address == "127.0.0.1:4437"
    assert settings.engine.segment_bytes == limits.SEGMENT_BYTES_DEFAULT


def test_file_is_stronger_than_defaults_and_command_line_stronger_than_file(file: Path) -> None:
    file.write_text('data = "from-file"\n[http]\nidle_ms = 1000\nstop_ms = 0\n[storage]\ncheckpoint_bytes = 65536\n')
    settings = load(file, {"http.idle_ms": 2_000, "http.address": "[::1]:0", "data": None})
    assert settings.data == Path("from-file")
    assert settings.faces["http"] == HttpSettings(idle_ms=2_000, stop_ms=0, address="[::1]:0")
    assert settings.faces["http"].listen == Address("::1", 0)
    assert settings.storage == StorageSettings(checkpoint_bytes=65_536)


def test_segments_in_memory_are_small_unless_said_otherwise() -> None:
    assert load(None, {"in_memory": True}).engine.segment_bytes == SEGMENT_BYTES_IN_MEMORY
    chosen = load(None, {"in_memory": True, "storage.segment_bytes": 32 * limits.MIB})
    assert chosen.engine.segment_bytes == 32 * limits.MIB


def test_command_line_chooses_the_other_place_than_the_file(file: Path) -> None:
    file.write_text('data = "d"\n')
    assert load(file, {"in_memory": True}) == load(None, {"in_memory": True})
    file.write_text("in_memory = true\n")
    assert load(file, {"data": Path("d")}) == load(None, {"data": Path("d")})


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.key)
def test_both_bounds_are_allowed(file: Path, setting: Setting) -> None:
    for value in (setting.meta.ge, setting.meta.le):
        file.write_text(line(setting.key, value))
        settings = load(file, {})
        table, _, name = setting.key.rpartition(".")
        assert getattr(settings.faces.get(table) or getattr(settings, table), name) == value


def test_body_never_outgrows_a_batch() -> None:
    most = SETTINGS["http.body_bytes_max"].meta.le
    assert most is not None
    assert most < limits.BATCH_BYTES_MAX


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.key)
def test_number_beyond_a_bound_is_refused_with_the_bounds(file: Path, setting: Setting) -> None:
    least, most = setting.meta.ge, setting.meta.le
    assert least is not None
    assert most is not None
    for value in (least - 1, most + 1, -1):
        message = refused(file, line(setting.key, value))
        assert message.startswith(f"{setting.key} = {value}: is out of range")
        assert f"{least:,} to {most:,}" in message


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.key)
def test_another_type_is_refused_with_what_is_allowed(file: Path, setting: Setting) -> None:
    others = {
        bool: ["1", '"true"', "[]"],
        int: ["true", "1.0", '"1"', "1979-05-27"],
        str: ["4437", "true"],
        tuple: ["1", '"a"', "[1]"],
    }
    for value in others.get(setting.kind, ["1", "false", "[]"]):
        text = line(setting.key, value) if setting.key != "data" else f"data = {value}\n"
        message = refused(file, text)
        assert re.match(rf"{re.escape(setting.key)} = .+: (has another type|is not a list of texts)", message)
        assert setting.allowed in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('dat = "x"', 'dat = "x": there is no such key, did you mean data? (allowed: data, in_memory, zone)'),
        (
            "idle_ms = 3",
            "idle_ms = 3: there is no such key, did you mean http.idle_ms? (allowed: data, in_memory, zone)",
        ),
        ("[htttp]\nidle_ms = 3", "htttp = {'idle_ms': 3}: there is no such key, did you mean http?"),
        ('[http]\naddres = "x"', 'http.addres = "x": there is no such key, did you mean http.address?'),
        ('data = "d"\nzone = "a b"', 'zone = "a b": has another form (allowed: 1 to 64 letters'),
        (
            "[storage]\nx = 1",
            "storage.x = 1: there is no such key, did you mean storage.hold_ms? (allowed: segment_bytes, ",
        ),
        ("http = 3", "http = 3: is a table (allowed: [http] and keys below it)"),
        ("[http.address]\nx = 1", "http.address = {'x': 1}: has another type"),
        ('data = ""', 'data = "": is no path'),
        ('data = "a\\u0000"', 'data = "a\\u0000": is no path'),
        ('data = "d"\nin_memory = true', "in_memory = true: stands beside data"),
        ("", "data: where do the records go?"),
        ("in_memory = false", "data: where do the records go?"),
        ("data = ", "is not TOML: "),
        ('data = "d"\ndata = "e"', "is not TOML: "),
        ("[storage]\nsegment_bytes = 16385", "storage.segment_bytes = 16385: is not a multiple"),
        (f'dat = "{"x" * 500}"', f'dat = "{"x" * 59}…: there is no such key'),
    ],
)
def test_file_is_refused_with_the_reason(file: Path, text: str, message: str) -> None:
    assert refused(file, text).startswith(message)


def test_file_that_is_missing_or_not_text_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"oncelog\.toml: cannot be read: No such file"):
        load(file, {})
    with pytest.raises(SettingsInvalid, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    file.write_bytes(b'data = "\xff"')
    with pytest.raises(SettingsInvalid, match=r"is not UTF-8 \(byte 8\)"):
        load(file, {})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"http.address": "nowhere"}, 'command line: http.address = "nowhere": there is no port'),
        ({"http.idle": 3}, "command line: http.idle = 3: there is no such key, did you mean http.idle_ms?"),
        ({"in_memory": True, "data": Path("d")}, "command line: in_memory = true: stands beside data"),
        ({}, "command line: data: where do the records go?"),
    ],
)
def test_command_line_is_refused_with_the_reason(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(None, overrides)
    assert str(caught.value).startswith(message)


# --- addresses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:4437", "127.0.0.1", 4437),
        ("localhost:0", "localhost", 0),
        ("[::1]:0", "::1", 0),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        ("[::]:65535", "::", 65535),
    ],
)
def test_address_is_read_and_said_alike(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no port"),
        ("localhost", "there is no port"),
        (":80", "not an address"),
        ("h:", "not an address"),
        ("h:-1", "not an address"),
        ("h:x", "not an address"),
        ("h:65536", "no such port"),
        ("::1:80", "in brackets"),
        ("[::1]", "not an address"),
        ("[]:1", "not an address"),
        ("a b:1", "not an address"),
        ("http://h:1", "not an address"),
        ("h:١", "not an address"),
    ],
)
def test_what_is_no_address_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_address(text)


# --- the page --------------------------------------------------------------------------------------------------


def test_page_is_what_the_source_says() -> None:
    assert config_doc.PAGE.read_text() == config_doc.render(), f"docs/config.md is stale: {config_doc.COMMAND}"


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.key)
def test_every_setting_says_what_it_means(setting: Setting) -> None:
    assert setting.meta.description
    assert f"| `{setting.key.rpartition('.')[2]}` |" in config_doc.PAGE.read_text()


def test_example_on_the_page_says_the_defaults(file: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", config_doc.PAGE.read_text(), re.DOTALL)
    assert block
    file.write_text(block[1])
    assert load(file, {}) == load(None, {"data": Path("/var/lib/oncelog")})


# --- arrays of tables ------------------------------------------------------------------------------------------

PEER = """data = "d"
zone = "plant-7"

[[peer]]
name = "centre"
token_file = "centre.token"
append_subjects = ["facts.operational.>"]

[[peer]]
name = "lab"
"""


def test_array_of_tables_is_read_in_its_order(file: Path) -> None:
    file.write_text(PEER)
    settings = load(file, {"zone": "plant-8"})
    assert settings.zone == "plant-8"
    assert [peer.name for peer in settings.peer] == ["centre", "lab"]
    assert settings.peer[0].token_file == Path("centre.token")
    assert settings.peer[0].append_subjects == ("facts.operational.>",)
    assert settings.peer[1].append_subjects == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[peer]]\n", "peer[1].name: is missing"),
        ("[peer]\nname = 'a'\n", "peer = {'name': 'a'}: is an array of tables (allowed: [[peer]] and keys below it)"),
        ("[[peer]]\nname = 'a'\n[[peer]]\nnam = 'b'\n", 'peer[2].nam = "b": there is no such key'),
        ("[[peer]]\nname = 'a b'\n", 'peer[1].name = "a b": has another form'),
        ("[[peer]]\nname = 'a'\nconsumers = 'c'\n", 'peer[1].consumers = "c": is not a list of texts'),
        ("[[peer]]\nname = 'a'\nconsumers = ['']\n", 'peer[1].consumers = "": is empty'),
        ("[[peer]]\nname = 'a'\ntoken_file = 3\n", "peer[1].token_file = 3: has another type"),
        ("zone = 'a b'", 'zone = "a b": has another form'),
    ],
)
def test_array_of_tables_is_refused_with_the_reason(file: Path, text: str, message: str) -> None:
    assert refused(file, text).startswith(message)


def test_command_line_cannot_give_an_array_of_tables() -> None:
    with pytest.raises(SettingsInvalid, match=r"peer = 1: is an array of tables .allowed: \[\[peer\]\] in a file"):
        load(None, {"data": Path("d"), "peer": 1})


# --- environment -----------------------------------------------------------------------------------------------


def test_command_line_wins_over_the_environment_and_that_over_the_file(file: Path) -> None:
    file.write_text('data = "d"\nhttp.idle_ms = 2000\nhttp.stop_ms = 3000\nhttp.write_stall_ms = 4000\n')
    environment = {"ONCELOG_HTTP_STOP_MS": "5000", "ONCELOG_HTTP_WRITE_STALL_MS": "6000", "HOME": "x"}
    overrides = {"http.write_stall_ms": 7_000}
    http = load(file, overrides, environment).faces["http"]
    assert (http.idle_ms, http.stop_ms, http.write_stall_ms) == (2_000, 5_000, 7_000)
    sources = {key: given.source for key, given in choose(file, overrides, environment).items()}
    assert sources == {
        "data": str(file),
        "http.idle_ms": str(file),
        "http.stop_ms": "ONCELOG_HTTP_STOP_MS",
        "http.write_stall_ms": "command line",
    }


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.key)
def test_every_setting_has_a_variable_of_its_own(setting: Setting) -> None:
    assert [key for key in SETTINGS if variable_of(key) == variable_of(setting.key)] == [setting.key]


def test_text_of_a_variable_needs_no_quotes() -> None:
    settings = load(None, {}, {"ONCELOG_DATA": "1", "ONCELOG_HTTP_ADDRESS": "127.0.0.1:0", "ONCELOG_ZONE": "7"})
    assert (settings.data, settings.faces["http"].address, settings.zone) == (Path("1"), "127.0.0.1:0", "7")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ONCELOG_HTTP_IDLE_MS", "soon", "has another type"),
        ("ONCELOG_HTTP_IDLE_MS", "1", "is out of range"),
        ("ONCELOG_HTTP_IDLE", "1", "did you mean ONCELOG_HTTP_IDLE_MS?"),
        ("ONCELOG_HTTP_ADDRESS", "nowhere", "HOST:PORT"),
    ],
)
def test_wrong_variable_is_refused_by_its_name(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(None, {"data": Path("d")}, {variable: value})
    assert variable in str(caught.value)
    assert says in str(caught.value)


def test_variables_of_other_programs_are_left_alone() -> None:
    load(None, {"data": Path("d")}, {"ONCELOG_URL": "http://x", "ONCELOG_PURE": "1", "ONCELOG_SPARK_JAVA": "x"})
