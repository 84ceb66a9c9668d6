"""The file of routes, and files with tokens."""

from pathlib import Path

import pytest

from oncelog.forward.configuration import RoutesInvalid, routes_of, token_of
from oncelog.forward.daemon import RATE_DEFAULT, Route


def test_routes_have_addresses_and_tokens(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("secret-1\n")
    file = tmp_path / "routes.toml"
    file.write_text(
        f'[[route]]\nfrom = "127.0.0.1:1"\nto = "http://127.0.0.1:2"\nfrom_token_file = "{tmp_path / "t"}"\n'
        '[[route]]\nfrom = "http://a:1"\nto = "http://b:2"\nconsumer = "c"\nto_zones = ["x"]\nrate = 7\n'
    )
    assert routes_of(file) == [
        Route("http://127.0.0.1:1", "http://127.0.0.1:2", "", (), RATE_DEFAULT, "secret-1", ""),
        Route("http://a:1", "http://b:2", "c", ("x",), 7, "", ""),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "route"),
        ("route = []", "no"),
        ("[[route]]\nfrom = 1", "str"),
        ('[[route]]\nfrom = "http://a:1"', "to"),
        ('[[route]]\nfrom = "http://a:1"\nto = "ftp://b"', "route 1"),
        ('[[route]]\nfrom = "http://a:1"\nto = "http://b:2"\nrate = 0', "rate is 0"),
        ('[[route]]\nfrom = "http://a:1"\nto = "http://b:2"\ncolour = 1', "colour"),
        ("[[route", "TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(text)
    with pytest.raises(RoutesInvalid, match=says):
        routes_of(file)


@pytest.mark.parametrize("text", ["", "two words", "a\nb", "é"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(RoutesInvalid, match="no token"):
        token_of(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoutesInvalid, match="cannot be read"):
        token_of(tmp_path / "none")
