"""A boundary under test: its address, Connect calls in JSON and protobuf, facts with ids of their own."""

import http.client
import json
import os
import uuid
from typing import Any
from urllib.parse import urlsplit

from oncelog.protocols.bsfg import messages

SERVICE = "/bsfg.v1.BoundaryService/"
PATIENCE_S = 30


class Refused(Exception):
    """An error of the Connect protocol."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.code: str = body["code"]
        self.message: str = body.get("message", "")
        self.details: list[dict[str, Any]] = body.get("details", [])


class Boundary:
    """One node."""

    def __init__(self, url: str, zone: str = "", token: str = "", stream: str = "facts.operational") -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._token = token
        self.stream = stream
        self.zone = zone or self._asked_zone()

    def _asked_zone(self) -> str:
        status, _, body = self.request("GET", "/bsfg/zone")
        return str(json.loads(body)["zone"]) if status == 200 else "local"

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers in lower case, body."""
        connection = http.client.HTTPConnection(self._parts.hostname or "", self._parts.port, timeout=PATIENCE_S)
        given = dict(headers or {})
        if self._token:
            given.setdefault("Authorization", f"Bearer {self._token}")
        try:
            connection.request(method, path, body or None, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def call(self, method: str, message: Any, *, proto: bool = False, headers: dict[str, str] | None = None) -> Any:
        """One call; the answer as a dict with 64-bit numbers as int. Raises Refused."""
        if proto:
            body = messages.to_protobuf(f"{method}Request", message)
        else:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
        kind = "application/proto" if proto else "application/json"
        status, answered, content = self.request(
            "POST", SERVICE + method, body, {"Content-Type": kind, "Connect-Protocol-Version": "1", **(headers or {})}
        )
        if status != 200:
            assert answered["content-type"].startswith("application/json"), (status, content)
            raise Refused(status, json.loads(content))
        assert answered["content-type"].startswith(kind)
        decode = messages.from_protobuf if proto else messages.from_json
        return decode(f"{method}Response", content)

    def fact(self, message_id: str = "", **changes: Any) -> dict[str, Any]:
        """A fact of this zone, with an id that nobody has used. `changes` go into the envelope or the fact."""
        envelope = {
            "message_id": message_id or new_id(),
            "from_zone": self.zone,
            "to_zone": "elsewhere",
            "produced_at_unix_ms": 1_780_000_000_000,
        }
        fact = {"subject": "conformance:suite/1", "predicate": "was_measured", "object_json": '{"value": 21.5}'}
        message: dict[str, Any] = {"envelope": envelope, "fact": fact}
        for name, value in changes.items():
            if name in fact:
                fact[name] = value
            elif name == "attachments":
                message["attachments"] = value
            else:
                envelope[name] = value
        return message

    def append(self, message_id: str = "", **changes: Any) -> int:
        """Append a fact; its sequence."""
        return int(self.call("AppendFact", self.fact(message_id, **changes)).get("sequence", 0))

    def fetch(self, consumer: str, limit: int = 1_000) -> list[dict[str, Any]]:
        asked = {"consumer_name": consumer, "limit": limit, "stream": self.stream}
        return list(self.call("FetchFacts", asked).get("facts", []))

    def confirm(self, consumer: str, sequence: int) -> int:
        asked = {"consumer_name": consumer, "sequence": sequence, "stream": self.stream}
        return int(self.call("ConfirmReceipt", asked).get("frontier", 0))

    def caught_up(self) -> tuple[str, int]:
        """A new consumer that has confirmed all there is, and its frontier."""
        consumer = f"conformance-{uuid.uuid4().hex}"
        frontier = 0
        while facts := self.fetch(consumer):
            asked = {
                "consumer_name": consumer,
                "stream": self.stream,
                "sequence": facts[-1]["sequence"],
            }
            for fact in facts[:-1]:
                self.call("ConfirmReceipt", {**asked, "sequence": fact["sequence"]})
            frontier = int(self.call("ConfirmReceipt", asked)["frontier"])
        return consumer, frontier


def new_id() -> str:
    return f"conformance-{uuid.uuid4().hex}"


def from_environment() -> Boundary | None:
    """The node that the environment names."""
    url = os.environ.get("BSFG_URL", "")
    if not url:
        return None
    names = (("zone", "BSFG_ZONE"), ("token", "BSFG_TOKEN"), ("stream", "BSFG_STREAM"))
    return Boundary(url, **{name: text for name, variable in names if (text := os.environ.get(variable, ""))})
