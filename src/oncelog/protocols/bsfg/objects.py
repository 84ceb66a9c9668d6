"""Objects: PutObject and GetObject, and whether an object that a fact refers to is there.

Objects of a bucket are records of the topic `objects.<bucket>`. The manifest of an object is a record with its key, its
digest, size and media type in headers, and the message id of the topic is the key: so an object is written once, the
entry that publishes it names its digest, and other content under a key is refused by the rule that refuses other
content under a message id (P3). A small object is its manifest's value. A large one lies in the `chunks` records before
its manifest, published with it in one entry; each but the last holds `CHUNK_BYTES`.

What the id is compared by is SHA-256 over digest and size. The media type is that of the first upload; a fact may give
its object another one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import Append, GetReceipt
from oncelog.core.facts import Attachment, FactInvalid
from oncelog.core.message_id import DIGEST_BYTES
from oncelog.core.outcome import Confirmed, IdConflict, NotFound, ReceiptFound, Refusal, TopicMissing
from oncelog.core.rows import FOREVER, TopicConfig
from oncelog.errors import BatchInvalid
from oncelog.limits import MIB
from oncelog.protocols.bsfg.connect import RpcError
from oncelog.protocols.bsfg.messages import Message
from oncelog.protocols.bsfg.policy import Caller
from oncelog.protocols.bsfg.refusal_map import error_of
from oncelog.protocols.bsfg.zone import Find, Steps, Zone, appended

CALL_BYTES_MAX: Final = 3 * MIB
"""What PutObject and GetObject carry: one batch. Larger objects are streamed at /bsfg/objects/<bucket>/<key>."""

CHUNK_BYTES: Final = 1 * MIB

OBJECT_CONFIG: Final = TopicConfig(dedupe_floor_ms=FOREVER)
"""What the topic of a bucket is made with."""

DIGEST_HEADER: Final = "bsfg.digest"
SIZE_HEADER: Final = "bsfg.size"
MEDIA_TYPE_HEADER: Final = "bsfg.media_type"
CHUNKS_HEADER: Final = "bsfg.chunks"


class Manifest(NamedTuple):
    """One object, as its manifest names it."""

    offset: int
    """Of the manifest."""
    digest: str
    size: int
    media_type: str
    chunks: int
    """Records before the manifest that hold the content; 0 if the manifest holds it."""
    value: bytes


def topic_of(bucket: str) -> str:
    """The topic of a bucket."""
    return f"objects.{bucket}"


def claimed_digest(digest: str, size: int) -> bytes:
    """What the id of an object is compared by."""
    return hashlib.sha256(f"{digest}\n{size}".encode()).digest()[:DIGEST_BYTES]


def manifest_headers(digest: str, size: int, media_type: str, chunks: int) -> list[tuple[str, bytes | None]]:
    """The headers of a manifest."""
    return [
        (DIGEST_HEADER, digest.encode()),
        (SIZE_HEADER, b"%d" % size),
        (MEDIA_TYPE_HEADER, media_type.encode()),
        (CHUNKS_HEADER, b"%d" % chunks),
    ]


def checked_name(bucket: str, key: str) -> None:
    """Raise RpcError if an object cannot have this name."""
    try:
        facts.check_object_name("bucket", bucket, "key", key)
    except FactInvalid as invalid:
        raise RpcError("invalid_argument", str(invalid)) from None


def put_object(zone: Zone, _caller: Caller, request: Message) -> Steps:
    """Store an object, once."""
    bucket, key, media_type = (request.get(name, "") for name in ("bucket", "key", "media_type"))
    blob: bytes = request.get("blob", b"")
    checked_name(bucket, key)
    if len(media_type) > facts.TEXT_BYTES_MAX or not media_type.isprintable():
        raise RpcError(
            "invalid_argument", f"media_type: printable text of at most {facts.TEXT_BYTES_MAX:,} characters."
        )
    if len(blob) > CALL_BYTES_MAX:
        limit = f"the limit of PutObject is {CALL_BYTES_MAX:,}. Send it by PUT /bsfg/objects/{bucket}/<key>."
        raise RpcError("invalid_argument", f"blob: {len(blob):,} bytes; {limit}")
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    headers = manifest_headers(digest, len(blob), media_type, 0)
    batch = codec.encode([(0, 0, key.encode(), blob, headers)])
    claimed = claimed_digest(digest, len(blob))
    command = Append(topic_of(bucket), 0, batch, 1, claimed, message_id=key.encode())
    outcome = yield from appended(zone, command, OBJECT_CONFIG)
    if isinstance(outcome, IdConflict):
        raise taken(bucket, key)
    if not isinstance(outcome, Confirmed):
        raise error_of(outcome, f"the object {bucket}/{key} was not stored")
    return {"digest": digest, "size": len(blob), "duplicate": outcome.duplicate}


def taken(bucket: str, key: str) -> RpcError:
    """The error of a key that holds another object."""
    text = f"{bucket}/{key} holds other content. Objects are immutable: store this one under another key."
    return RpcError("already_exists", f"conflicting_duplicate: {text} Nothing was written.")


def get_object(_zone: Zone, _caller: Caller, request: Message) -> Steps:
    """An object of at most `CALL_BYTES_MAX`, checked against its digest."""
    bucket, key = request.get("bucket", ""), request.get("key", "")
    checked_name(bucket, key)
    manifest: Manifest = yield from manifest_of(bucket, key)
    if manifest.size > CALL_BYTES_MAX:
        limit = f"the limit of GetObject is {CALL_BYTES_MAX:,}. Fetch it by GET /bsfg/objects/{bucket}/<key>."
        raise RpcError("failed_precondition", f"{bucket}/{key} has {manifest.size:,} bytes; {limit}")
    blob = manifest.value
    if manifest.chunks:
        parts: list[bytes] = yield from chunks_of(bucket, manifest, 0, manifest.chunks)
        blob = b"".join(parts)
    found = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    if found != manifest.digest or len(blob) != manifest.size:
        stored = f"{manifest.digest} and {manifest.size:,} bytes"
        raise RpcError("data_loss", f"{bucket}/{key} was stored with {stored}; what is there has {found}.")
    return {"blob": blob, "digest": manifest.digest, "size": manifest.size, "media_type": manifest.media_type}


def manifest_of(bucket: str, key: str) -> Any:
    """Steps that return the manifest of an object. Raises RpcError."""
    topic = topic_of(bucket)
    receipt = yield GetReceipt(topic, 0, key.encode())
    if isinstance(receipt, NotFound | TopicMissing) or (isinstance(receipt, ReceiptFound) and receipt.gone):
        raise RpcError("not_found", f"there is no object {key!r} in bucket {bucket!r}.")
    if not isinstance(receipt, ReceiptFound):
        raise error_of(receipt, f"the object {bucket}/{key} cannot be found")
    found = yield Find(topic, receipt.first, 1)
    if isinstance(found, Refusal):
        raise error_of(found, f"the object {bucket}/{key} cannot be read")
    for at, value, headers in _records(found):
        if at == receipt.first:
            told = {name: (content or b"").decode() for name, content in headers}
            size, chunks = int(told[SIZE_HEADER]), int(told[CHUNKS_HEADER])
            return Manifest(at, told[DIGEST_HEADER], size, told[MEDIA_TYPE_HEADER], chunks, value or b"")
    raise RpcError("not_found", f"there is no object {key!r} in bucket {bucket!r}.")


def chunks_of(bucket: str, manifest: Manifest, first: int, next_: int) -> Any:
    """Steps that return the chunks [first, next_) of an object. Raises RpcError."""
    parts: list[bytes] = []
    while first + len(parts) < next_:
        offset = manifest.offset - manifest.chunks + first + len(parts)
        found = yield Find(topic_of(bucket), offset, CHUNK_BYTES)
        if isinstance(found, Refusal):
            raise error_of(found, f"an object of bucket {bucket} cannot be read")
        added = [value or b"" for at, value, _ in _records(found) if at >= offset][: next_ - first - len(parts)]
        if not added:
            raise RpcError("data_loss", f"an object of bucket {bucket} is not whole.")
        parts += added
    return parts


def _records(found: Any) -> list[tuple[int, bytes | None, Sequence[tuple[str, bytes | None]]]]:
    """(offset, value, headers) of the records that were found."""
    records: list[tuple[int, bytes | None, Sequence[tuple[str, bytes | None]]]] = []
    for base_offset, batch in found.batches:
        try:
            offsets, _, _, values, headers = codec.decode_columns(batch, base_offset=base_offset)
        except BatchInvalid as error:
            raise RpcError("data_loss", f"the batch at offset {base_offset} cannot be decoded: {error}") from None
        records += zip(offsets, values, headers, strict=True)
    return records


def attached(attachments: Sequence[Attachment]) -> Any:
    """Steps that raise RpcError unless every object that a fact refers to is there, as the fact says it is."""
    for number, each in enumerate(attachments):
        receipt = yield GetReceipt(topic_of(each.bucket), 0, each.key.encode())
        field = f"attachments[{number}]"
        if isinstance(receipt, NotFound | TopicMissing) or (isinstance(receipt, ReceiptFound) and receipt.gone):
            what = f"there is no object {each.key!r} in bucket {each.bucket!r}. Store it first."
            raise RpcError("failed_precondition", f"{field}: {what}")
        if not isinstance(receipt, ReceiptFound):
            raise error_of(receipt, f"{field} cannot be found")
        if receipt.digest != claimed_digest(each.digest, each.size):
            what = f"the object {each.bucket}/{each.key} has another digest or size"
            raise RpcError("failed_precondition", f"{field}: {what}. PutObject answered what it has.")
