"""Requests that somebody might send: sensible paths and headers, and senseless ones, in any combination."""

from hypothesis import strategies as st

from oncelog.core import batch as codec
from tests.protocols.http.requests import NOW_MS

RAW = "application/vnd.oncelog.batches"
BATCH = codec.encode_values([b"a", b"b"], NOW_MS)

METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"BREW"])

_PARTS = [
    "a",
    "json",
    "..",
    "%2e",
    "%00",
    "%",
    "%C3%BC",
    "",
    "/",
    "trim",
    "drop",
    "delete-records",
    "1",
    "9" * 19,
    "commit",
]
_STARTS = [
    "/v1/stream/", "/stream/", "/v1/topics/", "/v1/receipts/", "/v1/producers/", "/v1/cursors/", "/v1/applications/",
    "/v1/stages/", "/v1/commit/producers/", "/v1/", "/", "http://h/v1/stream/",
]  # fmt: skip
_QUERIES = [
    "", "?", "?partition=1", "?partition=99999", "?offset=1&live=long-poll", "?offset=-1&live=sse", "?offset=now",
    "?at=1",
    "?at=0", "?limit=5&after=a%2F1", "?limit=1&prefix=a", "?topic=a&after=b", "?scope=x", "?%=", "?a=%ff", "?topic=a",
]  # fmt: skip
TARGETS = st.one_of(
    st.builds(
        lambda start, parts, query: (start + "/".join(parts) + query).encode(),
        st.sampled_from(_STARTS),
        st.lists(st.sampled_from(_PARTS), max_size=4),
        st.sampled_from(_QUERIES),
    ),
    st.builds(
        lambda path, query: (path + query).encode(),
        st.sampled_from(["/v1/commit", "/v1/publish", "/v1/stages", "/v1/stages/drop", "/v1/cut", "/v1/streams"]),
        st.sampled_from(_QUERIES),
    ),
    st.sampled_from([b"/v1/producers?topic=a", b"/v1/cursors", b"/health", b"/metrics", b"*", b""]),
)

_VALUES = [
    b"", b"0", b"1", b"2", b"9" * 19, b"9" * 30, b"true", b"\xff", b"text/plain", b"application/json", RAW.encode(),
    b"*",
    b'"1"', b"a\tb", b"rising",
]  # fmt: skip
_NAMES = [
    b"content-type", b"stream-closed", b"producer-id", b"producer-epoch", b"producer-seq", b"producer-mode",
    b"if-match",
    b"x-producer-id", b"x-producer-seq", b"x-producer-epoch", b"x-producer-session", b"stream-message-id",
    b"stream-seq",
    b"idempotency-key", b"stream-partitions", b"accept", b"if-none-match", b"host", b"stream-ttl",
]  # fmt: skip
HEADERS = st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_VALUES))

_BODIES = [
    b"", b"{}", b"[]", b"[1]", BATCH, BATCH + b"x", BATCH[:-1], BATCH[:20], b'{"floor":1}', b'{"partitions":-1}',
    b'{"partitions":3}', b'{"ranges":[[0,1]]}', b'{"ranges":[[0]]}', b'{"ranges":[[1,9223372036854775808]]}',
    b'{"stage_ids":[1]}', b'{"frontier":1e9}', b'{"frontier":1}', b'{"content_type":"\\r\\n"}',
    b'{"dedupe_floor_ms":0}',
    b'{"application":"a","fence":1}', b'{"application":"a","fence":1,"query":"q","batch":0}',
    b'{"appends":[{"topic":"a","records":[{"value":"x"}],"message_id":"m"}],"commit_id":"c"}',
    b'{"cursors":[{"name":"n","topic":"a","frontier":1}],"conditions":[{"kind":"stream_new","topic":"a"}]}',
    b'{"appends":[{"topic":"a","records":[{"json":1}]}],"producer":{"name":"p","epoch":0,"sequence":0}}',
]  # fmt: skip
BODIES = st.one_of(
    st.sampled_from(_BODIES),
    st.binary(max_size=80),
    st.builds(
        lambda at, byte: BATCH[:at] + byte + BATCH[at + 1 :],
        st.integers(0, len(BATCH)),
        st.binary(min_size=1, max_size=1),
    ),
)
