"""docs/protocols/http.md: the example of a commit runs as it stands there."""

import re
import shlex
from pathlib import Path

from tests.servers.running import running
from tests.servers.talking import Headers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocols" / "http.md"
JSON: Headers = {"Content-Type": "application/json"}


def test_commits_of_the_documentation_run_one_after_the_other() -> None:
    section = PAGE.read_text().partition("\n### `POST /v1/commit`\n")[2].partition("\n## ")[0]
    shell, every_member = re.findall(r"^```(?:json)?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    topics = re.search(r"for topic in ([\w ]+);", shell)
    assert topics is not None
    words = shlex.split(shell.partition("\n")[2])
    with running() as server:
        for topic in topics[1].split():
            assert server.ask("PUT", f"/v1/stream/{topic}", headers=JSON).status == 201
        first = server.ask("POST", "/v1/commit", words[words.index("-d") + 1].encode())
        assert (first.status, first.json["duplicate"]) == (200, False)
        second = server.ask("POST", "/v1/commit", every_member.encode())
        assert (second.status, second.json["duplicate"]) == (200, False), second
        assert second.json["producer"] is not None
        again = server.ask("POST", "/v1/commit", every_member.encode())
        assert again.json == {**second.json, "duplicate": True}
