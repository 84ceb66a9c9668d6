"""What to do about an error that is no refusal of the core: the hint of its code, unless who tells it knows a better
one. Refusals of the core have theirs in `refusal_map`. A test asks for every code that can be answered."""

from typing import Final

HINTS: Final[dict[str, str]] = {
    "batch_invalid": "send one whole record batch of format 2, with its checksum; nothing was stored",
    "body_invalid": "GET /v1/openapi.json describes it",
    "body_too_large": "send it in smaller pieces, or through a stage",
    "content_type_missing": "HEAD of the stream tells its Content-Type: send the same",
    "encoding_unsupported": "send the body as it is; nothing was done, and this connection is closed",
    "expectation_failed": "leave Expect out, or send Expect: 100-continue",
    "header_invalid": "correct the header that is named, or leave it out; nothing was done",
    "header_repeated": "send it once; nothing was done",
    "headers_too_large": "send fewer or shorter headers, or raise http.header_bytes_max",
    "host_invalid": "send Host with the name that the server was reached by; this connection is closed",
    "host_missing": "send Host with the name that the server was reached by; this connection is closed",
    "json_invalid": "send one JSON value in UTF-8, or an array of them; other content needs a stream of its type",
    "malformed_request": "send HTTP/1.1 on a new connection: this one is closed, and nothing of the request was done",
    "method_not_allowed": "send one of those; Allow lists them, too",
    "not_built": "do without it: docs/protocols/http.md says what is built",
    "origin_refused": "write from a program, or set http.browser_writes if pages are to write here; nothing was done",
    "overloaded": "try again in a moment",
    "path_unknown": "streams are at /v1/stream/<topic>; GET /v1/openapi.json lists the rest",
    "target_invalid": "correct the path or the query; GET /v1/openapi.json describes all but /v1/stream/<topic>",
    "target_too_long": "send a shorter path or query, or raise http.header_bytes_max",
    "too_many_connections": "try again in a moment; close connections that are not used, or raise http.connections_max",
    "too_many_records": "send them in several requests; nothing was stored",
    "too_slow": "send it again, faster; or change http.header_deadline_ms, body_grace_ms or body_rate_min",
    "upgrade_unsupported": "send requests to this server itself: it is no proxy",
    "version_unsupported": "send HTTP/1.1 on a new connection; nothing was done",
}
