"""From a verdict on a producer or a txn to the answer: the one place that knows both vocabularies."""

from typing import assert_never

from oncelog.core import verdict as verdicts
from oncelog.core.outcome import (
    ClaimInvalid,
    EpochNotAtZero,
    Fenced,
    Refusal,
    SequenceConflict,
    SequenceGap,
    TxnRefused,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.txn import TxnVerdict

RefusedVerdict = (
    verdicts.Gap
    | verdicts.Fenced
    | verdicts.Conflict
    | verdicts.EpochMustStartAtZero
    | verdicts.EpochAhead
    | verdicts.ModeMismatch
    | verdicts.Overlap
    | verdicts.BadClaim
)


def refusal_of(verdict: RefusedVerdict) -> Refusal:
    """Every verdict that is neither an acceptance nor a duplicate."""
    match verdict:
        case verdicts.Gap():
            return SequenceGap(verdict.expected, verdict.received)
        case verdicts.Fenced():
            return Fenced(verdict.current_epoch, verdict.claimed_epoch)
        case verdicts.Conflict():
            return SequenceConflict(verdict.sequence, verdict.remembered_digest, verdict.claimed_digest)
        case verdicts.EpochMustStartAtZero():
            return EpochNotAtZero(0, verdict.received)
        case verdicts.EpochAhead():
            return ClaimInvalid(ClaimInvalid.EPOCH_NOT_GIVEN, verdict.current_epoch, verdict.claimed_epoch)
        case verdicts.ModeMismatch():
            here, claimed = (SequenceMode(mode).name.lower() for mode in (verdict.mode, verdict.claimed_mode))
            return ClaimInvalid(f"an epoch has one mode: this one's is {here}, the claim's is {claimed}")
        case verdicts.Overlap():
            return ClaimInvalid("the range is partly written", verdict.last + 1, verdict.claimed_first)
        case verdicts.BadClaim():
            return ClaimInvalid(verdict.reason, received=verdict.number)
        case _:
            assert_never(verdict)


def refusal_of_txn(verdict: TxnVerdict) -> Refusal | None:
    """The answer of a refusing verdict."""
    if verdict.refusal is None:
        return None
    return TxnRefused(verdict.refusal.name, verdict.producer_id, verdict.epoch)
