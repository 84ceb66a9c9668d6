"""What every face can be told: where it listens, and how long and how much it grants a client. Each face has a class of
its own over this one, in `servers/<face>/settings.py`, and sets the default of `address` there.

A setting is a field with a type and a `Meta`; see `settings.py` for how files and flags become these.
"""

import re
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

ADDRESS_FORM: Final = {"form": "address"}
ADDRESS: Final = Meta(
    description="Where to listen. An IPv6 host stands in brackets; port 0 is any free one", extra=ADDRESS_FORM
)
"""What every face says of its `address`."""


class Address(NamedTuple):
    """Where to listen. Port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:\[\]/@]+)):(?P<port>[0-9]{1,5})"
)


def parse_address(text: str) -> Address:
    """`host:port`, an IPv6 host in brackets. ValueError says what is wrong."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        if text.count(":") > 1 and not text.strip("0123456789abcdefABCDEF:."):
            raise ValueError("an IPv6 address stands in brackets")
        raise ValueError("not an address" if ":" in text else "there is no port")
    if int(match["port"]) > 65_535:
        raise ValueError("no such port")
    return Address(match["v6"] or match["host"], int(match["port"]))


class FaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared parts of a face need. The default of `address` is the face's own."""

    address: Annotated[str, ADDRESS] = "127.0.0.1:0"
    enabled: Annotated[bool, Meta(description="Whether this face is started")] = True
    tls_certificate: Annotated[
        Path | None,
        Meta(description="A PEM file with the server's certificate and its chain: connections are then TLS"),
    ] = None
    tls_key: Annotated[
        Path | None, Meta(description="A PEM file with the private key, if it is not in the file of the certificate")
    ] = None
    connections_max: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="Connections open at once; fewer if the limit of open files allows no more"
        ),
    ] = 20_000
    idle_ms: Annotated[
        int, Meta(ge=100, le=24 * HOUR_MS, description="A connection without a request is closed after this")
    ] = 5 * MINUTE_MS
    write_stall_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="A client that takes none of its answer for this long is cut")
    ] = 30_000
    stop_ms: Annotated[
        int, Meta(ge=0, le=HOUR_MS, description="How long a stop waits for requests in progress before it cuts them")
    ] = 10_000

    @property
    def listen(self) -> Address:
        return parse_address(self.address)

    @property
    def shortest_deadline_ms(self) -> int:
        """The shortest time that somebody must look at the connections for. A face with deadlines of its own adds
        them."""
        return min(self.idle_ms, self.write_stall_ms)


class AdvertisingSettings(FaceSettings, frozen=True, kw_only=True):
    """Settings of a face that tells its clients where to connect to, as Kafka and NATS do."""

    advertise: Annotated[
        str | None,
        Meta(
            description="The address that clients are told to connect to; if not set, the one that they dialled",
            extra=ADDRESS_FORM,
        ),
    ] = None
