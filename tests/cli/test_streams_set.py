"""`oncelog streams set`: limits of a topic, in amounts that people write."""

import pytest
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.main import app
from tests.servers.running import running


def invoke(url: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"ONCELOG_URL": url, "NO_COLOR": "1", "COLUMNS": "200"}).invoke(app, ["streams", *arguments])
    return result.exit_code, result.output


def test_limits_are_set_and_taken_away() -> None:
    with running() as server:
        url = f"http://127.0.0.1:{server.port}"
        path = "/v1/topics/orders"
        server.ask("PUT", path, b"{}")
        code, _ = invoke(url, "set", "orders", "--max-age", "7d", "--max-bytes", "10GB", "--max-records", "1000")
        assert code == exits.DONE
        told = server.ask("GET", path).json
        limits = (told["retention_ms"], told["retention_bytes"], told["retention_records"])
        assert limits == (7 * 86_400_000, 10**10, 1_000)
        assert invoke(url, "set", "orders", "--max-age", "none")[0] == exits.DONE
        told = server.ask("GET", path).json
        assert (told["retention_ms"], told["retention_bytes"]) == (0, 10**10)
        assert "orders" in invoke(url)[1]
        code, said = invoke(url, "set", "nobody", "--max-age", "1h")
        assert code == exits.REFUSED
        assert "nobody" in said


@pytest.mark.parametrize(
    "arguments", [["--max-age", "soon"], ["--max-bytes", "7d"], ["--max-records", "-1"], ["--max-age", ""], []]
)
def test_what_is_no_amount_is_a_usage_error(arguments: list[str]) -> None:
    code, said = invoke("http://127.0.0.1:1", "set", "orders", *arguments)
    assert code == exits.USAGE, said
