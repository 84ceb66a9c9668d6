"""Appends, closes and creations: claims before conditions, ids that meet, answers that say what became of it."""

import pytest

from oncelog.core import batch as codec
from oncelog.core.message_id import content_digest
from tests.servers.running import Running, running
from tests.servers.talking import Headers, request

RAW = "application/vnd.oncelog.batches"
RAW_TYPE: Headers = {"Content-Type": RAW}
TIME_MS = 1_700_000_000_000


def numbered(seq: int, epoch: int = 0) -> Headers:
    return {"Producer-Id": "p", "Producer-Epoch": epoch, "Producer-Seq": seq}


# --- If-Match ------------------------------------------------------------------------------------------------------


def test_if_match_appends_only_at_the_tail_and_hands_on_the_next_tag(shared: Running, text: str) -> None:
    tag = '"0"'
    for number in range(3):
        answer = shared.ask("POST", text, b"x", {"If-Match": tag})
        assert (answer.status, answer.next_offset) == (204, number + 1)
        tag = answer.headers["etag"]
        assert tag == f'"{number + 1:016d}"'
    late = shared.ask("POST", text, b"late", {"If-Match": '"1"'})
    assert (late.status, late.code) == (412, "tail_mismatch")
    assert (late.json["expected"], late.json["tail"]) == (1, 3)
    assert (late.headers["etag"], late.next_offset) == (tag, 3)
    assert shared.ask("POST", text, b"x", {"If-Match": late.headers["etag"]}).next_offset == 4


def test_retry_with_if_match_is_the_success_it_was(shared: Running, text: str) -> None:
    headers = numbered(0) | {"If-Match": '"0"'}
    first = shared.ask("POST", text, b"a", headers)
    assert (first.status, first.headers["etag"]) == (200, f'"{1:016d}"')
    assert shared.ask("POST", text, b"b").next_offset == 2
    retry = shared.ask("POST", text, b"a", headers)
    assert (retry.status, retry.next_offset, retry.headers["etag"]) == (204, 1, f'"{1:016d}"')
    id_headers: Headers = {"Stream-Message-Id": "m", "If-Match": '"2"'}
    assert shared.ask("POST", text, b"c", id_headers).next_offset == 3
    again = shared.ask("POST", text, b"c", id_headers)
    assert (again.status, again.next_offset, again.headers["stream-duplicate"]) == (204, 3, "true")


def test_refused_condition_takes_no_sequence_and_no_id(shared: Running, text: str) -> None:
    headers = numbered(0) | {"Stream-Message-Id": "m"}
    assert shared.ask("POST", text, b"a", headers | {"If-Match": '"5"'}).status == 412
    assert shared.ask("POST", text, b"a", headers | {"If-Match": '"0"'}).status == 200


def test_condition_counts_however_few_headers_there_are(shared: Running, text: str) -> None:
    with shared.client() as client:
        head = f"POST {text} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n"
        for header, status in (("If-Match: 7", 412), ("Stream-Message-Id: m", 204), ("Stream-Seq: 5", 204)):
            client.send(f"{head}{header}\r\n\r\nx".encode())
            assert client.answer().status == status
        client.send(f"{head}Idempotency-Key: m\r\n\r\nx".encode())
        assert client.answer().headers["stream-duplicate"] == "true"
        client.send(f"{head}Stream-Seq: 4\r\n\r\nx".encode())
        assert client.answer().code == "order_key_not_rising"


# --- message ids ---------------------------------------------------------------------------------------------------


def test_message_id_conflict_has_both_digests_and_the_original_offset(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"before")
    assert shared.ask("POST", text, b"one", {"Stream-Message-Id": "m"}).next_offset == 2
    answer = shared.ask("POST", text, b"two", {"Stream-Message-Id": "m"})
    assert (answer.status, answer.code, answer.json["offset"]) == (409, "id_conflict", 1)
    assert answer.json["stored_digest"] == content_digest(b"one").hex()
    assert answer.json["claimed_digest"] == content_digest(b"two").hex()
    assert shared.ask("HEAD", text).next_offset == 2


def test_message_id_is_recognised_from_any_sender(shared: Running, text: str, topic: str) -> None:
    first = shared.ask("POST", text, b"a", {"Stream-Message-Id": "m"})
    assert (first.status, "stream-duplicate" in first.headers) == (204, False)
    for headers in ({"Stream-Message-Id": "m"}, {"Idempotency-Key": "m"}):
        again = shared.ask("POST", text, b"a", headers)
        assert (again.status, again.next_offset, again.headers["stream-duplicate"]) == (204, 1, "true")
    body = b'{"appends": [{"topic": "%b", "message_id": "m", "records": [{"value": "a"}]}]}' % topic.encode()
    commit = shared.ask("POST", "/v1/commit", body)
    assert commit.status == 200
    assert commit.json["duplicate"] is True
    assert commit.json["outcome"] == [{"topic": topic, "partition": 0, "first": 0, "next": 1}]
    assert shared.ask("HEAD", text).next_offset == 1


def test_message_id_of_a_commit_is_recognised_by_an_append(shared: Running, text: str, topic: str) -> None:
    body = b'{"appends": [{"topic": "%b", "message_id": "m", "records": [{"value": "a"}]}]}' % topic.encode()
    assert shared.ask("POST", "/v1/commit", body).json["duplicate"] is False
    again = shared.ask("POST", text, b"a", numbered(0) | {"Stream-Message-Id": "m"})
    assert (again.next_offset, again.headers["stream-duplicate"]) == (1, "true")
    raw = shared.ask("POST", text, codec.encode_one(b"a", TIME_MS), RAW_TYPE | {"Stream-Message-Id": "m"})
    assert (raw.next_offset, raw.headers["stream-duplicate"]) == (1, "true")
    conflict = shared.ask("POST", text, b"b", numbered(0) | {"Stream-Message-Id": "m"})
    assert conflict.code == "id_conflict"


def test_duplicate_of_a_removed_record_says_so(shared: Running, text: str, topic: str) -> None:
    shared.ask("POST", text, b"a", {"Stream-Message-Id": "m"})
    shared.ask("POST", text, b"b")
    assert shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 1}').status == 200
    again = shared.ask("POST", text, b"a", {"Stream-Message-Id": "m"})
    assert (again.status, again.next_offset) == (204, 1)
    assert (again.headers["stream-duplicate"], again.headers["stream-gone"]) == ("true", "true")


def test_order_key_must_rise_byte_by_byte(shared: Running, text: str) -> None:
    for key, status in [("09", 204), ("10", 204), ("10", 409), ("2", 204), ("10", 409), ("a", 204), ("B", 409)]:
        assert shared.ask("POST", text, b"x", {"Stream-Seq": key}).status == status, key


def test_retry_comes_before_the_order_key(shared: Running, text: str) -> None:
    headers = numbered(0) | {"Stream-Seq": "5"}
    assert shared.ask("POST", text, b"x", headers).status == 200
    assert shared.ask("POST", text, b"x", headers).status == 204
    answer = shared.ask("POST", text, b"x", numbered(1) | {"Stream-Seq": "5"})
    assert (answer.code, answer.json["last"], answer.json["received"]) == ("order_key_not_rising", "5", "5")


# --- producers -----------------------------------------------------------------------------------------------------


def test_producer_new_duplicate_gap_and_fence(shared: Running, text: str) -> None:
    first = shared.ask("POST", text, b"a", numbered(0))
    assert (first.status, first.headers["producer-epoch"], first.headers["producer-seq"]) == (200, "0", "0")
    assert shared.ask("POST", text, b"b", numbered(1)).next_offset == 2
    retry = shared.ask("POST", text, b"a", numbered(0))
    assert (retry.status, retry.next_offset, retry.headers["producer-seq"]) == (204, 1, "1")
    assert retry.headers["stream-duplicate"] == "true"
    assert shared.ask("POST", text, b"x", numbered(20)).code == "sequence_gap"
    assert shared.ask("POST", text, b"c", numbered(0, epoch=2)).status == 200
    fenced = shared.ask("POST", text, b"x", numbered(2))
    assert (fenced.status, fenced.code, fenced.headers["producer-epoch"]) == (403, "fenced", "2")
    later = shared.ask("POST", text, b"x", numbered(1, epoch=3))
    assert (later.status, later.code) == (400, "epoch_not_at_zero")


def test_rising_producer_skips_numbers_and_never_goes_back(shared: Running, text: str) -> None:
    rising: Headers = {"Producer-Mode": "rising"}
    for seq, status in [(10, 200), (500, 200), (499, 204), (10, 204), (501, 200)]:
        assert shared.ask("POST", text, b"%d" % seq, numbered(seq) | rising).status == status, seq
    assert shared.ask("GET", text).body == b"10500501"


# --- closing -------------------------------------------------------------------------------------------------------

CLOSE: Headers = {"Stream-Closed": "true"}


def test_close_alone_and_again(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a")
    for _ in range(2):
        answer = shared.ask("POST", text, headers=CLOSE)
        assert (answer.status, answer.headers["stream-closed"], answer.next_offset) == (204, "true", 1)
    late = shared.ask("POST", text, b"b")
    assert (late.status, late.code, late.headers["stream-closed"], late.next_offset) == (
        409,
        "stream_closed",
        "true",
        1,
    )
    assert shared.ask("GET", text).headers["stream-closed"] == "true"
    assert shared.ask("HEAD", text).headers["stream-closed"] == "true"


def test_append_and_close_in_one(shared: Running, text: str) -> None:
    answer = shared.ask("POST", text, b"last", CLOSE | numbered(0))
    assert (answer.status, answer.headers["stream-closed"], answer.next_offset) == (200, "true", 1)
    retry = shared.ask("POST", text, b"last", CLOSE | numbered(0))
    assert (retry.status, retry.headers["stream-closed"]) == (204, "true")
    assert shared.ask("GET", text).body == b"last"


@pytest.mark.parametrize(("claim", "status"), [(numbered(0), 204), ({"X-Producer-Id": "p", "X-Producer-Seq": 0}, 201)])
def test_retried_close_says_that_it_is_one(shared: Running, text: str, claim: Headers, status: int) -> None:
    answer = shared.ask("POST", text, headers=CLOSE | claim)
    assert (answer.status, "stream-duplicate" in answer.headers) == (status, False)
    retry = shared.ask("POST", text, headers=CLOSE | claim)
    assert (retry.status, retry.headers["stream-duplicate"]) == (204, "true")


@pytest.mark.parametrize("value", ["false", "1", "yes", ""])
def test_only_true_closes(shared: Running, text: str, value: str) -> None:
    assert "stream-closed" not in shared.ask("POST", text, b"a", {"Stream-Closed": value}).headers
    assert shared.ask("POST", text, b"a").status == 204


@pytest.mark.parametrize("header", ["If-Match", "Stream-Message-Id", "Stream-Seq"])
def test_close_with_a_condition_that_nobody_would_look_at_is_400(shared: Running, text: str, header: str) -> None:
    assert shared.ask("POST", text, headers=CLOSE | {header: "0"}).status == 400
    assert "stream-closed" not in shared.ask("HEAD", text).headers


# --- creating ------------------------------------------------------------------------------------------------------


def test_create_twice_agrees_and_differently_does_not(shared: Running, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    created = shared.ask("PUT", path, headers={"Content-Type": "text/plain", "Host": "log.example:4437"})
    assert created.status == 201
    assert created.headers["location"] == f"http://log.example:4437{path}"
    assert created.headers["content-type"] == "text/plain"
    assert created.next_offset == 0
    again = shared.ask("PUT", path, headers={"Content-Type": "TEXT/plain; charset=utf-8"})
    assert (again.status, "location" in again.headers) == (200, False)
    for headers in (
        {"Content-Type": "application/json"},
        CLOSE | {"Content-Type": "text/plain"},
        {"Stream-Partitions": 2},
    ):
        other = shared.ask("PUT", path, headers=headers)
        assert (other.status, other.code) == (409, "topic_exists")


def test_create_with_first_content(shared: Running, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    created = shared.ask("PUT", path, b'[1, {"a": 2}]', {"Content-Type": "application/json"} | CLOSE)
    assert (created.status, created.next_offset, created.headers["stream-closed"]) == (201, 2, "true")
    answer = shared.ask("GET", path)
    assert (answer.body, answer.headers["stream-closed"]) == (b'[1,{"a": 2}]', "true")


def test_deleted_stream_begins_anew(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"old", numbered(0) | {"Stream-Message-Id": "m"})
    tag = shared.ask("GET", text).headers["etag"]
    assert shared.ask("DELETE", text).status == 204
    for method in ("GET", "HEAD", "DELETE"):
        assert shared.ask(method, text).status == 404
    assert shared.ask("PUT", text, headers={"Content-Type": "text/plain"}).status == 201
    assert shared.ask("GET", text).body == b""
    new = shared.ask("POST", text, b"new", numbered(0) | {"Stream-Message-Id": "m"})
    assert (new.status, new.next_offset) == (200, 1)
    assert shared.ask("GET", text, headers={"If-None-Match": tag}).status == 200


def test_partitions_are_streams_of_their_own(shared: Running, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    shared.ask("PUT", path, headers={"Content-Type": "text/plain", "Stream-Partitions": 3})
    for partition in (0, 2, 2):
        shared.ask("POST", f"{path}?partition={partition}", b"%d" % partition)
    assert [shared.ask("GET", f"{path}?partition={number}").body for number in range(3)] == [b"0", b"", b"22"]
    assert shared.ask("GET", f"{path}?partition=3").code == "topic_missing"


# --- reads ---------------------------------------------------------------------------------------------------------


def test_trimmed_offset_is_410_and_says_where_the_stream_begins(shared: Running, text: str, topic: str) -> None:
    for value in (b"a", b"b", b"c"):
        shared.ask("POST", text, value)
    shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 2}')
    gone = shared.ask("GET", f"{text}?offset=1")
    assert (gone.status, gone.code, gone.headers["stream-floor"]) == (410, "offset_gone", f"{2:016d}")
    assert shared.ask("GET", f"{text}?offset=-1").body == b"c"
    ahead = shared.ask("GET", f"{text}?offset=4")
    assert (ahead.status, ahead.code, ahead.json["limit"]) == (400, "offset_ahead", 3)


def test_etag_is_known_until_something_comes(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a")
    tag = shared.ask("GET", text).headers["etag"]
    with shared.client() as client:
        client.send(request("GET", text, headers={"If-None-Match": tag}) + request("GET", text))
        assert client.answer().status == 304
        assert client.answer().body == b"a", "304 has no body: the next answer begins right behind it"
    shared.ask("POST", text, b"b")
    assert shared.ask("GET", text, headers={"If-None-Match": tag}).body == b"ab"
    tag = shared.ask("GET", text).headers["etag"]
    shared.ask("POST", text, headers=CLOSE)
    assert shared.ask("GET", text, headers={"If-None-Match": tag}).status == 200


# --- raw batches ---------------------------------------------------------------------------------------------------


def test_raw_batch_comes_back_as_it_went_in(shared: Running, text: str) -> None:
    records: list[codec.Record] = [
        (0, TIME_MS, b"key", b"value", (("h", b"v"), ("n", None))),
        (1, TIME_MS + 5, None, b"second", ()),
        (2, TIME_MS + 1, b"only a key", None, ()),
    ]
    shared.ask("POST", text, b"before")
    answer = shared.ask("POST", text, codec.encode(records), RAW_TYPE)
    assert (answer.status, answer.next_offset) == (204, 4)
    raw = shared.ask("GET", f"{text}?offset=1", headers={"Accept": RAW})
    assert (raw.headers["content-type"], raw.next_offset) == (RAW, 4)
    header = codec.skim(raw.body)
    assert (header.base_offset, header.record_count) == (1, 3)
    assert codec.decode(raw.body) == records
    assert shared.ask("GET", text).body == b"beforevaluesecond"


def test_raw_reads_are_whole_batches_with_holes_left_out(shared: Running, text: str, topic: str) -> None:
    shared.ask("POST", text, codec.encode_values([b"a", b"b", b"c"], TIME_MS), RAW_TYPE)
    shared.ask("POST", text, b"d")
    shared.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": [[1, 2]]}')
    raw = shared.ask("GET", f"{text}?offset=2", headers={"Accept": f"text/html, {RAW};q=0.9"})
    found, at = [], 0
    while at < len(raw.body):
        header = codec.read_header(raw.body, at)
        batch = raw.body[at : at + header.batch_bytes]
        codec.skim(batch, dense=False)
        found += [(header.base_offset + record[0], record[3]) for record in codec.decode(batch)]
        at += header.batch_bytes
    assert found == [(0, b"a"), (2, b"c"), (3, b"d")]
    assert shared.ask("GET", text).body == b"acd"


def test_raw_batch_takes_part_in_everything_else(shared: Running, text: str) -> None:
    batch = codec.encode_values([b"a", b"b"], TIME_MS)
    headers = RAW_TYPE | numbered(0) | {"Stream-Message-Id": "m", "If-Match": "0"}
    assert shared.ask("POST", text, batch, headers).status == 200
    again = shared.ask("POST", text, batch, headers)
    assert (again.status, again.next_offset) == (204, 2)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]),
        lambda batch: batch[:-1],
        lambda batch: batch + b"x",
        lambda batch: batch + batch,
        lambda batch: batch[:10],
        lambda batch: batch[:16] + b"\x01" + batch[17:],
    ],
    ids=["bad CRC", "cut short", "one byte more", "two batches", "no header", "other magic"],
)
def test_broken_raw_batch_is_400(shared: Running, text: str, spoil: object) -> None:
    assert callable(spoil)
    entry = shared.entry()
    answer = shared.ask("POST", text, spoil(codec.encode_values([b"a", b"b"], TIME_MS)), RAW_TYPE)
    assert (answer.status, answer.code) == (400, "batch_invalid")
    assert isinstance(answer.json["position"], int)
    assert shared.entry() == entry


def test_transactional_and_control_batches_are_400(shared: Running, text: str) -> None:
    records: list[codec.Record] = [(0, TIME_MS, None, b"x", ())]
    of_a_txn = codec.encode(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    for batch in (of_a_txn, codec.encode_marker(7, 0, True, 0, TIME_MS)):
        answer = shared.ask("POST", text, batch, RAW_TYPE)
        assert (answer.status, answer.code) == (400, "batch_invalid")
    assert shared.ask("HEAD", text).next_offset == 0


def test_stream_of_json_holds_json_through_whatever_path(shared: Running, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with shared.client() as client:
        client.send(
            request("PUT", path, headers={"Content-Type": "application/json"})
            + request("POST", path, codec.encode_one(b"no json", TIME_MS), RAW_TYPE)
            + request(
                "POST", "/v1/commit", b'{"appends":[{"topic":"%b","records":[{"value":"no json"}]}]}' % topic.encode()
            )
            + request("POST", path, codec.encode_one(b'{"a": 1}', TIME_MS), RAW_TYPE)
        )
        assert client.answer().status == 201
        for _ in range(2):
            assert client.answer().status == 400
        assert client.answer().status == 204
    assert shared.ask("GET", path).body == b'[{"a": 1}]'


# --- what may be kept ----------------------------------------------------------------------------------------------


def test_etag_changes_when_a_record_is_removed(shared: Running, text: str, topic: str) -> None:
    for value in (b"a", b"b", b"c"):
        shared.ask("POST", text, value)
    tag = shared.ask("GET", text).headers["etag"]
    assert shared.ask("GET", text, headers={"If-None-Match": tag}).status == 304
    shared.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": [[1, 2]]}')
    answer = shared.ask("GET", text, headers={"If-None-Match": tag})
    assert (answer.status, answer.body) == (200, b"ac")


def test_kept_answer_does_not_outlive_what_it_was_made_of(topic: str) -> None:
    """Reads that do not reach the end are kept for the next reader: until a record in them is deleted or trimmed, the
    stream is made anew, or its type is another."""
    path = f"/v1/stream/{topic}"
    json_type = {"Content-Type": "application/json"}
    values = [b"%d" % number * 100 for number in range(1, 10)]
    with running(read_bytes_max=1024) as server:
        server.ask("PUT", path, headers=json_type)
        for value in values * 3:
            server.ask("POST", path, value, json_type)

        def kept(offset: int = 0, **headers: str) -> tuple[str, bytes]:
            first, again = (server.ask("GET", f"{path}?offset={offset}", headers=headers) for _ in range(2))
            assert "stream-up-to-date" not in first.headers
            assert (first.body, first.headers) == (again.body, again.headers)
            return first.headers["content-type"], first.body

        assert kept() == ("application/json", b"[" + b",".join(values[: kept()[1].count(b",") + 1]) + b"]")
        assert kept(Accept=RAW)[0] == RAW
        server.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": [[1, 2]]}')
        assert values[1] not in kept()[1]
        assert server.ask("PATCH", f"/v1/topics/{topic}", b'{"content_type": "text/plain"}').status == 200
        content_type, body = kept()
        assert (content_type, body[:1], b"," in body) == ("text/plain", b"1", False)
        server.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 1}')
        assert server.ask("GET", f"{path}?offset=0").status == 410
        server.ask("DELETE", path)
        server.ask("PUT", path, headers=json_type)
        assert server.ask("GET", f"{path}?offset=0").body == b"[]"
