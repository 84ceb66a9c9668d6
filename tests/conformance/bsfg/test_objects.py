"""PutObject and GetObject: objects come before the facts that refer to them, and never change."""

import base64
import hashlib
from typing import Any

import pytest

from tests.conformance.bsfg.boundary import Boundary, Refused, new_id

MIB = 1 << 20
BUCKET = "conformance"


def stored(node: Boundary, blob: bytes, media_type: str = "text/plain") -> dict[str, Any]:
    """Put an object; the attachment that refers to it."""
    key = new_id()
    given = base64.b64encode(blob).decode()
    answer = node.call("PutObject", {"bucket": BUCKET, "key": key, "blob": given, "media_type": media_type})
    assert answer["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
    assert answer.get("size", 0) == len(blob)
    return {"bucket": BUCKET, "key": key, "digest": answer["digest"], "size": len(blob), "media_type": media_type}


@pytest.mark.parametrize("blob", [b"a report", bytes(range(256)) * 4_096, b""], ids=["short", "one MiB", "empty"])
@pytest.mark.parametrize("proto", [False, True], ids=["json", "protobuf"])
def test_an_object_comes_back_as_it_was_put(node: Boundary, blob: bytes, proto: bool) -> None:
    attachment = stored(node, blob)
    found = node.call("GetObject", {"bucket": BUCKET, "key": attachment["key"]}, proto=proto)
    assert found.get("blob", b"") == blob
    assert (found["digest"], found["media_type"]) == (attachment["digest"], "text/plain")


def test_an_object_of_three_mebibytes_fits(node: Boundary) -> None:
    key, blob = new_id(), bytes(3 * MIB)
    node.call("PutObject", {"bucket": BUCKET, "key": key, "blob": blob}, proto=True)
    assert node.call("GetObject", {"bucket": BUCKET, "key": key}, proto=True)["blob"] == blob


def test_a_larger_one_is_refused_by_its_size(node: Boundary) -> None:
    with pytest.raises(Refused) as refused:
        node.call("PutObject", {"bucket": BUCKET, "key": new_id(), "blob": bytes(3 * MIB + 1)}, proto=True)
    assert refused.value.code == "invalid_argument"
    assert "3,145,728" in refused.value.message


def test_the_same_object_again_is_a_duplicate(node: Boundary) -> None:
    put = {"bucket": BUCKET, "key": new_id(), "blob": b"x"}
    first = node.call("PutObject", put, proto=True)
    again = node.call("PutObject", put, proto=True)
    assert (first.get("duplicate", False), again["duplicate"]) == (False, True)


def test_other_content_under_a_key_is_refused(node: Boundary) -> None:
    put = {"bucket": BUCKET, "key": new_id(), "blob": b"x"}
    node.call("PutObject", put, proto=True)
    with pytest.raises(Refused) as refused:
        node.call("PutObject", {**put, "blob": b"y"}, proto=True)
    assert refused.value.code == "already_exists"
    assert node.call("GetObject", {"bucket": BUCKET, "key": put["key"]}, proto=True)["blob"] == b"x"


def test_an_object_that_is_not_there_is_not_found(node: Boundary) -> None:
    with pytest.raises(Refused) as refused:
        node.call("GetObject", {"bucket": BUCKET, "key": new_id()})
    assert refused.value.code == "not_found"


def test_a_fact_may_refer_to_an_object_that_is_there(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    attachment = {**stored(node, b"a report"), "file_name": "report.txt"}
    sequence = node.append(attachments=[attachment])
    (fact,) = node.fetch(consumer)
    assert (fact["sequence"], fact["attachments"]) == (sequence, [attachment])


@pytest.mark.parametrize(
    "changes", [{"key": "missing"}, {"digest": "sha256:" + "0" * 64}, {"size": 1}], ids=["missing", "digest", "size"]
)
def test_a_fact_that_refers_to_another_object_is_refused(node: Boundary, changes: dict[str, Any]) -> None:
    attachment = {**stored(node, b"a report"), **changes}
    with pytest.raises(Refused) as refused:
        node.append(attachments=[attachment])
    assert refused.value.code == "failed_precondition"
    assert "attachments[0]" in refused.value.message


def test_attachments_belong_to_the_identity_in_their_order(node: Boundary) -> None:
    one, two = stored(node, b"1"), stored(node, b"2")
    id_ = new_id()
    first = node.append(id_, attachments=[one, two])
    assert node.append(id_, attachments=[one, two]) == first
    with pytest.raises(Refused) as refused:
        node.append(id_, attachments=[two, one])
    assert refused.value.code == "already_exists"


@pytest.mark.parametrize("bucket", ["", "Upper", "a/b", "x" * 64])
def test_a_bucket_that_cannot_be_is_refused(node: Boundary, bucket: str) -> None:
    with pytest.raises(Refused) as refused:
        node.call("PutObject", {"bucket": bucket, "key": "k", "blob": ""})
    assert refused.value.code == "invalid_argument"
    assert "bucket" in refused.value.message
