"""Facts: what a record of a fact topic must be, and what makes two facts the same (BSFG, DESIGN section 12).

A fact is one record:

    key      the subject, `kind:id` or `kind:scope/id`
    value    JSON: {"object": ..., "predicate": "lower_snake_case", "subject": "..."}
    headers  the envelope, text in UTF-8 under the names below; absent means empty
             bsfg.message_id  bsfg.from_zone  bsfg.to_zone  bsfg.produced_at_unix_ms       required
             bsfg.correlation_id  bsfg.causation_id  bsfg.object_media_type  bsfg.object_schema
             bsfg.labels        a JSON object of texts
             bsfg.attachments   a JSON array of {bucket, key, digest, size, media_type, file_name}
             bsfg.content_sha256  SHA-256 of the identity in hex; optional, and right if it is there

The identity is the RFC 8785 form of an object of `attachments` (each [bucket, key, digest, size, media type], in
order), `from_zone`, `object`, `object_media_type`, `object_schema`, `predicate`, `subject`, `to_zone`. The digest of an
id is the first 16 bytes of its SHA-256. Time, correlation, causation, labels and file names do not belong to it.

`message_id` is unique in the zone over all fact topics, whatever face a fact comes through.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from oncelog.core import canonical
from oncelog.core.canonical import Json, JsonRefused
from oncelog.core.message_id import DIGEST_BYTES
from oncelog.errors import OncelogError
from oncelog.limits import KIB, MESSAGE_ID_BYTES_MAX, MIB, SEQUENCE_MAX

OPERATIONAL: Final = "facts.operational"
AUDIT: Final = "facts.audit"
DOCUMENTS: Final = "facts.documents"
TOPICS: Final = (OPERATIONAL, AUDIT, DOCUMENTS)

ID_ZONE: Final = "facts"
"""The zone of message ids of all fact topics. A constant: the name of a zone may change, its ids stay."""

OBJECT_BYTES_MAX: Final = 1 * MIB
"""JSON of one fact. What is larger is an object that a fact refers to."""
TEXT_BYTES_MAX: Final = 1 * KIB
"""Any other text of a fact: ids, names and schemas are short."""
ZONE_CHARACTERS_MAX: Final = 64
"""Zones are named by people, and the names are part of file names and metrics."""
LABELS_MAX: Final = 64
ATTACHMENTS_MAX: Final = 64
"""Together with the bounds on texts, an envelope stays below 400 KiB, so a fact fits one entry."""

HEADER: Final = "bsfg."
MESSAGE_ID_HEADER: Final = HEADER + "message_id"
SHA256_HEADER: Final = HEADER + "content_sha256"

ZONE_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ZONE_CHARACTERS_MAX - 1}}}"

_ZONE: Final = re.compile(ZONE_PATTERN)
_SUBJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:[^\s/:]+(?:/[^\s/]+)?")
_PREDICATE: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class FactInvalid(OncelogError):
    """A fact that cannot be taken: which field, and what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class Attachment(msgspec.Struct, gc=False, omit_defaults=True):
    """A reference to an object."""

    bucket: str
    key: str
    digest: str
    size: int
    media_type: str = ""
    file_name: str = ""


class Fact(msgspec.Struct, gc=False):
    """Envelope, fact and attachments, as they were sent."""

    message_id: str
    from_zone: str
    to_zone: str
    produced_at_unix_ms: int
    subject: str
    predicate: str
    object_json: str
    """JSON text, word for word."""
    correlation_id: str = ""
    causation_id: str = ""
    labels: dict[str, str] = {}
    object_media_type: str = ""
    object_schema: str = ""
    attachments: tuple[Attachment, ...] = ()


class FactRecord(msgspec.Struct, gc=False):
    """A fact that was checked, as the record that it is stored as."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    message_id: bytes
    digest: bytes
    """What the message id is compared by: 16 bytes."""
    timestamp_ms: int


class CheckedFact(msgspec.Struct, gc=False):
    """What the log remembers of a record of a fact topic."""

    message_id: bytes
    digest: bytes


OUTSIDE_THE_IDENTITY: Final = ("produced_at_unix_ms", "correlation_id", "causation_id", "labels")
"""Fields of the envelope in which a retry may differ."""


def differences(one: Fact, other: Fact) -> list[str]:
    """Names of the fields outside the identity in which two facts of one identity differ."""
    names = [name for name in OUTSIDE_THE_IDENTITY if getattr(one, name) != getattr(other, name)]
    if [each.file_name for each in one.attachments] != [each.file_name for each in other.attachments]:
        names.append("attachments.file_name")
    return names


# --- checks --------------------------------------------------------------------------------------------------------


def zone_refused(name: str) -> str:
    """What is wrong with the name of a zone; empty if nothing is."""
    if len(name) > ZONE_CHARACTERS_MAX:
        return f"{len(name):,} characters; the limit is {ZONE_CHARACTERS_MAX}. Shorten it."
    if _ZONE.fullmatch(name) is None:
        return (
            f"{name!r} is not a zone. A zone is letters, digits, '.', '_' and '-', and begins with a letter or digit."
        )
    return ""


def _text(field: str, text: str, *, required: bool = False, bytes_max: int = TEXT_BYTES_MAX) -> None:
    if required and not text:
        raise FactInvalid(field, "it is missing; every fact needs it.")
    if len(text) > bytes_max or not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise FactInvalid(field, "it holds a lone surrogate, which has no UTF-8. Send Unicode text.") from None
        if size > bytes_max:
            raise FactInvalid(field, f"{size:,} bytes; the limit is {bytes_max:,}. Shorten it.")
    if not text.isprintable():
        raise FactInvalid(field, f"{text[:80]!r} has control characters. Remove them.")


def _whole(field: str, number: int, least: int) -> None:
    if not least <= number <= SEQUENCE_MAX:
        raise FactInvalid(field, f"{number} is out of range; it is {least} to {SEQUENCE_MAX:,}.")


def check(fact: Fact) -> None:
    """Raise FactInvalid if a field of the fact, other than its object, cannot be taken."""
    _text("envelope.message_id", fact.message_id, required=True, bytes_max=MESSAGE_ID_BYTES_MAX)
    for field, zone in (("envelope.from_zone", fact.from_zone), ("envelope.to_zone", fact.to_zone)):
        _text(field, zone, required=True)
        if problem := zone_refused(zone):
            raise FactInvalid(field, problem)
    # From 1: proto3 cannot tell 0 from a time that is missing.
    if not fact.produced_at_unix_ms:
        raise FactInvalid("envelope.produced_at_unix_ms", "it is missing; every fact needs it.")
    _whole("envelope.produced_at_unix_ms", fact.produced_at_unix_ms, 1)
    _text("fact.subject", fact.subject, required=True)
    if _SUBJECT.fullmatch(fact.subject) is None:
        raise FactInvalid("fact.subject", f"{fact.subject[:80]!r} is not `kind:id` or `kind:scope/id`.")
    _text("fact.predicate", fact.predicate, required=True)
    if _PREDICATE.fullmatch(fact.predicate) is None:
        raise FactInvalid("fact.predicate", f"{fact.predicate[:80]!r} is not lower_snake_case.")
    for name in ("correlation_id", "causation_id", "object_media_type", "object_schema"):
        if text := getattr(fact, name):
            _text(f"envelope.{name}", text)
    if fact.labels:
        _check_labels(fact.labels)
    if fact.attachments:
        _check_attachments(fact.attachments)


def _check_labels(labels: dict[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise FactInvalid("envelope.labels", f"{len(labels):,} labels; the limit is {LABELS_MAX}. Send fewer.")
    for name, value in labels.items():
        _text("envelope.labels", name, required=True)
        _text("envelope.labels", value)


def _check_attachments(attachments: Sequence[Attachment]) -> None:
    if len(attachments) > ATTACHMENTS_MAX:
        raise FactInvalid("attachments", f"{len(attachments):,} attachments; the limit is {ATTACHMENTS_MAX}.")
    for number, each in enumerate(attachments):
        place = f"attachments[{number}]"
        check_object_name(f"{place}.bucket", each.bucket, f"{place}.key", each.key)
        if _DIGEST.fullmatch(each.digest) is None:
            raise FactInvalid(f"{place}.digest", f"{each.digest[:80]!r} is not `sha256:` and 64 digits of hex.")
        _whole(f"{place}.size", each.size, 0)
        _text(f"{place}.media_type", each.media_type)
        _text(f"{place}.file_name", each.file_name)


def check_object_name(bucket_field: str, bucket: str, key_field: str, key: str) -> None:
    """Raise FactInvalid if an object cannot have this name."""
    if _BUCKET.fullmatch(bucket) is None:
        what = "A bucket is 1 to 63 lower-case letters, digits, '.', '_' and '-'"
        raise FactInvalid(bucket_field, f"{bucket[:80]!r} is not a bucket. {what}, and begins with a letter or digit.")
    _text(key_field, key, required=True)


# --- identity ------------------------------------------------------------------------------------------------------


def object_of(object_json: str) -> Json:
    """The value of the fact's object. Raises FactInvalid."""
    if not object_json:
        raise FactInvalid("fact.object_json", "it is missing; every fact needs it.")
    if len(object_json) > OBJECT_BYTES_MAX:
        limit = f"the limit is {OBJECT_BYTES_MAX:,} bytes"
        raise FactInvalid("fact.object_json", f"{len(object_json):,} characters; {limit}. Put it into an object.")
    try:
        return canonical.read(object_json)
    except JsonRefused as refused:
        raise FactInvalid("fact.object_json", str(refused)) from None


def identity(fact: Fact, object_: Json) -> bytes:
    """What is compared: the canonical form of all that belongs to the identity."""
    return canonical.form(
        {
            "attachments": [
                [each.bucket, each.key, each.digest, each.size, each.media_type] for each in fact.attachments
            ],
            "from_zone": fact.from_zone,
            "object": object_,
            "object_media_type": fact.object_media_type,
            "object_schema": fact.object_schema,
            "predicate": fact.predicate,
            "subject": fact.subject,
            "to_zone": fact.to_zone,
        }
    )


def sha256_of(fact: Fact) -> str:
    """SHA-256 of the identity, in hex."""
    return hashlib.sha256(identity(fact, object_of(fact.object_json))).hexdigest()


# --- records -------------------------------------------------------------------------------------------------------


def record_of(fact: Fact) -> FactRecord:
    """Check a fact and make its record. Raises FactInvalid."""
    check(fact)
    object_ = object_of(fact.object_json)
    sha256 = hashlib.sha256(identity(fact, object_))
    headers: list[tuple[str, bytes]] = [
        (MESSAGE_ID_HEADER, fact.message_id.encode()),
        ("bsfg.from_zone", fact.from_zone.encode()),
        ("bsfg.to_zone", fact.to_zone.encode()),
        ("bsfg.produced_at_unix_ms", b"%d" % fact.produced_at_unix_ms),
    ]
    for name in _OPTIONAL_TEXTS:
        if text := getattr(fact, name):
            headers.append((HEADER + name, text.encode()))
    if fact.labels:
        headers.append(("bsfg.labels", canonical.form(fact.labels)))
    if fact.attachments:
        headers.append(("bsfg.attachments", _encode(fact.attachments)))
    headers.append((SHA256_HEADER, sha256.hexdigest().encode()))
    predicate, subject = canonical.written(fact.predicate), canonical.written(fact.subject)
    value = f'{{"object":{fact.object_json.strip()},"predicate":{predicate},"subject":{subject}}}'
    return FactRecord(
        fact.subject.encode(),
        value.encode(),
        tuple(headers),
        fact.message_id.encode(),
        sha256.digest()[:DIGEST_BYTES],
        fact.produced_at_unix_ms,
    )


_OPTIONAL_TEXTS: Final = ("correlation_id", "causation_id", "object_media_type", "object_schema")
_FIELDS: Final = frozenset(
    HEADER + name for name in ("from_zone", "to_zone", "produced_at_unix_ms", "labels", "attachments", *_OPTIONAL_TEXTS)
) | {MESSAGE_ID_HEADER, SHA256_HEADER}

_encode: Final = msgspec.json.Encoder().encode
_labels: Final = msgspec.json.Decoder(dict[str, str]).decode
_attachments: Final = msgspec.json.Decoder(tuple[Attachment, ...]).decode


class _Value(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The value of a record, its object untouched."""

    object: msgspec.Raw
    predicate: str
    subject: str


_value: Final = msgspec.json.Decoder(_Value).decode


def fact_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> Fact:
    """The fact that a record is. Raises FactInvalid if it is not one; does not `check` it."""
    given: dict[str, str] = {}
    for name, content in headers:
        if not name.startswith(HEADER):
            continue
        if name not in _FIELDS:
            raise FactInvalid(name[:80], "there is no such header of a fact.")
        if name in given:
            raise FactInvalid(name, "the record has this header twice.")
        try:
            given[name] = (content or b"").decode()
        except UnicodeDecodeError:
            raise FactInvalid(name, "it is not UTF-8.") from None
    if MESSAGE_ID_HEADER not in given:
        raise FactInvalid(MESSAGE_ID_HEADER, "it is missing; a record of a fact topic has an envelope in its headers.")
    try:
        body = _value(value or b"")
        subject = (key or b"").decode()
        labels = _labels(given.get("bsfg.labels", "{}"))
        attachments = _attachments(given.get("bsfg.attachments", "[]"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FactInvalid("value", f"a fact is JSON with object, predicate and subject: {error}") from None
    if subject != body.subject:
        raise FactInvalid("key", f"the key of a fact is its subject, {body.subject[:80]!r}, not {subject[:80]!r}.")
    produced = given.get("bsfg.produced_at_unix_ms", "")
    if not (produced.isascii() and produced.isdigit() and len(produced) <= 19):
        raise FactInvalid("bsfg.produced_at_unix_ms", f"{produced[:40]!r} is not a number of milliseconds.")
    texts = {name: given.get(HEADER + name, "") for name in _OPTIONAL_TEXTS}
    return Fact(
        given[MESSAGE_ID_HEADER],
        given.get("bsfg.from_zone", ""),
        given.get("bsfg.to_zone", ""),
        int(produced),
        subject,
        body.predicate,
        bytes(body.object).decode(),
        labels=labels,
        attachments=attachments,
        **texts,
    )


def checked(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> CheckedFact | str:
    """What the log remembers of a record of a fact topic; a text that says what is wrong if the record is no fact. The
    one check for records that come through any face."""
    try:
        if value is not None:
            canonical.read(value)  # keys that occur twice would pass the decoder of `fact_of`
        fact = fact_of(key, value, headers)
        check(fact)
        sha256 = hashlib.sha256(identity(fact, object_of(fact.object_json)))
    except FactInvalid as invalid:
        return str(invalid)
    except JsonRefused as refused:
        return f"value: {refused}"
    stated = next((content for name, content in headers if name == SHA256_HEADER), None)
    if stated is not None and stated != sha256.hexdigest().encode():
        return f"{SHA256_HEADER}: the content has {sha256.hexdigest()}. Leave the header out, or send that."
    return CheckedFact(fact.message_id.encode(), sha256.digest()[:DIGEST_BYTES])
