"""Recovery: its table, damage anywhere, and every crash and fault of small workloads.

A crash is judged by content: every group whose `write` returned is there, in order, and behind them at most the one
group that was being written. Nothing else, and never `Corruption`, since nothing was damaged.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import pytest
from crc32c import crc32c

from oncelog.errors import Corruption, StorageError
from oncelog.limits import FRAME_ALIGN_BYTES, SEGMENT_BYTES_MIN
from oncelog.storage.disk import MemoryDisk, write_all
from oncelog.storage.frame import frame_bytes, incarnation_of, pack_frame
from oncelog.storage.journal import Journal
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.recovery import RULES, Here, Rule, Verdict, decide
from oncelog.storage.segment import GroupGone, prepare_file, segment_name, spare_name, unready_name
from oncelog.testing.sim_disk import CHANGING_CALLS, Fault, SimCrash, SimDisk, crash_states, keep_all

S = SEGMENT_BYTES_MIN
SECTORS = S // 512


def open_journal(disk: SimDisk, *, salt: int = 1, from_group: int | None = None) -> Journal:
    return Journal.open(disk, segment_bytes=S, salt=salt, from_group=from_group)


def payloads(journal: Journal) -> list[bytes]:
    return [payload for _, payload in journal.groups(None) if payload]


def copy_of(disk: SimDisk) -> SimDisk:
    """The disk as a process that restarts finds it, without a power cut; then everything counts as synced."""
    return disk.crash(keep_all)


# --- the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    known: bool
    here: Here
    next_links: bool
    later: bool


EVERY_EVIDENCE = [Facts(*facts) for facts in product((False, True), Here, (False, True), (False, True))]


@pytest.mark.parametrize("facts", EVERY_EVIDENCE, ids=str)
def test_exactly_one_rule_matches_any_evidence(facts: Facts) -> None:
    assert [rule for rule in RULES if rule.matches(facts)] == [decide(facts)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_every_rule_is_needed(rule: Rule) -> None:
    assert any(decide(facts) is rule for facts in EVERY_EVIDENCE)


def test_verdicts_in_words() -> None:
    for facts in EVERY_EVIDENCE:
        verdict = decide(facts).verdict
        assert (verdict is Verdict.ACCEPT) == (facts.here is Here.FRAME)
        if verdict is Verdict.CUT:
            assert not facts.known
            assert not facts.later
        if verdict is Verdict.NEXT_SEGMENT:
            assert facts.next_links


# --- damage ----------------------------------------------------------------------------------------------------


def small_store() -> tuple[SimDisk, list[tuple[int, int, int]]]:
    """Two segments: proof, a, b | c, proof. Also (segment, position, size) of every frame."""
    disk = SimDisk()
    journal = open_journal(disk)
    journal.prepare()
    journal.prepare()
    for payload in (b"a" * 300, b"b" * 900, b"c" * (S - 2048)):
        journal.append([payload], urgent=True)
    proof = journal.prove()
    assert proof is not None
    journal.write(proof, ())
    journal.durable(proof)
    places = []
    for group, payload in journal.groups(None):
        segment, sector = divmod(group, SECTORS)
        places.append((segment, sector * 512, frame_bytes(len(payload))))
    assert [segment for segment, _, _ in places] == [0, 0, 0, 1, 1]
    return disk, places


def test_flip_of_any_byte_of_any_frame_is_named_with_file_and_position() -> None:
    disk, places = small_store()
    reader = JournalReader(disk)
    until = reader.last_group()
    assert until is not None
    for number, (segment, first, size) in enumerate(places):
        # The long frame is sampled in its middle; everything else is flipped byte by byte.
        offsets = [*range(min(size, 1024)), *range(1024, size, 97), size - 1]
        for offset in offsets:
            disk.flip(segment_name(segment), first + offset, 0x40)
            with pytest.raises(Corruption) as caught:
                list(reader.groups(None, until))
            assert (caught.value.file, caught.value.position) == (segment_name(segment), first)
            disk.flip(segment_name(segment), first + offset, 0x40)
            if offset % 64 or number == len(places) - 1:
                continue
            # Recovery, which does not know the end, finds the same from what stands behind.
            disk.flip(segment_name(segment), first + offset, 0x40)
            with pytest.raises(Corruption) as caught:
                open_journal(disk, salt=2)
            assert (caught.value.file, caught.value.position) == (segment_name(segment), first)
            disk.flip(segment_name(segment), first + offset, 0x40)
    assert len(payloads(open_journal(disk, salt=2))) == 3


def test_flip_in_the_last_proof_costs_only_the_proof() -> None:
    disk, places = small_store()
    segment, first, size = places[-1]
    for offset in range(0, size, 31):
        damaged = copy_of(disk)
        damaged.flip(segment_name(segment), first + offset, 0x01)
        assert len(payloads(open_journal(damaged, salt=2))) == 3


def test_flip_of_any_byte_of_a_header_sector_is_named() -> None:
    disk, _ = small_store()
    for segment in (0, 1):
        for position in range(512):
            disk.flip(segment_name(segment), position, 0x02)
            with pytest.raises(Corruption) as caught:
                JournalReader(disk).last_group()
            assert (caught.value.file, caught.value.position) == (segment_name(segment), 0)
            disk.flip(segment_name(segment), position, 0x02)


def test_flip_outside_frames_changes_nothing() -> None:
    disk, places = small_store()
    before = list(JournalReader(disk).groups(None, places[-1][0] * SECTORS + places[-1][1] // 512))
    end = sum(places[2][1:])
    for position in range(end, S, 61):
        disk.flip(segment_name(0), position, 0xFF)
    assert list(JournalReader(disk).groups(None, before[-1][0])) == before
    assert len(payloads(open_journal(disk, salt=2))) == 3


@pytest.mark.parametrize("segment", [0, 1])
def test_file_cut_short_at_any_byte_is_found(segment: int) -> None:
    disk, _ = small_store()
    # Every byte where frames begin, and a sample of the rest.
    for size in [*range(S - 1, 4096, -67), *range(4096, -1, -1)]:
        disk.truncate(segment_name(segment), size)
        with pytest.raises(Corruption) as caught:
            JournalReader(disk).last_group()
        assert caught.value.file == segment_name(segment)


def test_damage_is_refused_and_nothing_on_disk_changes() -> None:
    disk, places = small_store()
    disk.flip(segment_name(0), places[1][1] + 40, 0x01)
    before = copy_of(disk)
    for _ in range(2):
        with pytest.raises(Corruption, match="a valid frame follows at byte 1536"):
            open_journal(disk, salt=2)
    assert disk.names() == before.names()
    for name in disk.names():
        assert disk.open(name).pread(S, 0) == before.open(name).pread(S, 0)


def test_frame_replaced_by_an_older_one_is_a_stray() -> None:
    """A write that the device lost: the old bytes stand at their address, but the chain does not lead to them."""
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([b"first"])
    older = disk.open(segment_name(0)).pread(512, 1024)
    other = SimDisk()
    replaced = open_journal(other)
    replaced.append([b"FIRST"])
    replaced.append([b"second"])
    write_all(other.open(segment_name(0)), [older], 1024)
    with pytest.raises(Corruption, match="does not follow") as caught:
        open_journal(other, salt=2)
    assert caught.value.position == 1536, "the frame after the wrong one no longer links to it"


def test_missing_segments_are_named() -> None:
    disk, _ = small_store()
    disk.remove(segment_name(1))
    with pytest.raises(Corruption, match="missing") as caught:
        open_journal(disk, salt=2, from_group=SECTORS + 1)
    assert caught.value.file == segment_name(1)
    disk.remove(segment_name(0))
    with pytest.raises(Corruption, match="all segments are missing"):
        open_journal(disk, salt=2)


def test_first_frame_behind_a_trimmed_front_is_missed() -> None:
    disk, _ = small_store()
    journal = open_journal(disk, salt=2)
    journal.trim_front(journal.durable_group)
    for position in (512, S - 512):
        disk.flip(segment_name(1), position, 0xFF)
    damaged = copy_of(disk)
    write_all(damaged.open(segment_name(1)), [bytes(S - 512)], 512)
    with pytest.raises(Corruption, match="known to be durable") as caught:
        open_journal(damaged, salt=3)
    assert caught.value.position == 512


def test_damaged_spare_is_replaced() -> None:
    disk, _ = small_store()
    assert spare_name(1) in disk.names()
    disk.flip(spare_name(1), 100, 0x01)
    journal = open_journal(disk, salt=2)
    assert spare_name(1) not in disk.names()
    assert journal.stats.spares == 0


# --- start from a known group ----------------------------------------------------------------------------------


def test_opening_from_a_known_group_reads_only_what_follows() -> None:
    disk, places = small_store()
    disk.flip(segment_name(0), places[1][1] + 40, 0x01)
    journal = open_journal(disk, salt=2, from_group=SECTORS + 1)
    assert [group for group, _ in journal.groups(SECTORS + 1)] == [2 * SECTORS - 2, 2 * SECTORS - 1]


def test_opening_from_a_known_group_that_is_damaged_is_refused() -> None:
    disk, _ = small_store()
    with pytest.raises(Corruption, match="known to be durable"):
        open_journal(disk, salt=2, from_group=5)


def test_opening_from_a_trimmed_group_says_gone() -> None:
    disk, _ = small_store()
    journal = open_journal(disk, salt=2)
    journal.trim_front(journal.durable_group)
    with pytest.raises(GroupGone):
        open_journal(disk, salt=3, from_group=2)


# --- forged and stale frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize("counter", [1, 2, 2**32 - 1])
def test_forged_frame_in_the_payload_of_a_torn_group_is_no_evidence(counter: int) -> None:
    """A client that guesses address, incarnation and all but the journal's identity must not stop recovery."""
    disk = SimDisk()
    journal = open_journal(disk, salt=0xABCDEF)
    confirmed = journal.append([b"confirmed"])
    assert confirmed is not None
    group = confirmed + 1
    header, padding = pack_frame(crc32c(b""), incarnation_of(counter, 0xABCDEF), group + 1, 0, 0, [])
    payload = bytes(512 - 32) + header + padding + b"tail"
    open_group = journal.begin(len(payload))
    assert open_group is not None
    journal.seal(open_group, len(payload))
    journal.write(open_group, [payload])
    disk.flip(segment_name(0), group * 512, 0xFF)
    assert disk.open(segment_name(0)).pread(32, (group + 1) * 512) == header
    reopened = open_journal(disk, salt=2)
    assert payloads(reopened) == [b"confirmed"]
    assert reopened.durable_group == group


@pytest.mark.parametrize("sectors_behind_the_end", [0, 3])
@pytest.mark.parametrize(
    ("counter", "salt", "leftover"), [(1, 2, True), (2, 1, True), (2, 2, False), (3, 9, False)], ids=str
)
def test_frame_that_stands_is_evidence_unless_its_incarnation_is_over(
    counter: int, salt: int, leftover: bool, sectors_behind_the_end: int
) -> None:
    disk = SimDisk()
    open_journal(disk, salt=1)
    end = open_journal(disk, salt=2).durable_group + 1
    identity_crc = crc32c((1).to_bytes(16, "little"))
    group = end + sectors_behind_the_end
    header, padding = pack_frame(identity_crc, incarnation_of(counter, salt), group, 0xBAD, 4, [b"left"])
    write_all(disk.open(segment_name(0)), [header, b"left", padding], group * 512)
    if leftover:
        assert open_journal(disk, salt=3).durable_group == end
    else:
        with pytest.raises(Corruption) as caught:
            open_journal(disk, salt=3)
        assert caught.value.position == end * 512


def test_cut_group_leaves_remains_that_later_openings_ignore() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([b"confirmed"])
    journal.append([b"r" * 3000])
    disk.flip(segment_name(0), 1536 + 2000, 0xFF)
    for salt in range(2, 6):
        journal = open_journal(disk, salt=salt)
        assert payloads(journal) == [b"confirmed"] + [b"new"] * (salt - 2)
        journal.append([b"new"])


# --- crashes ---------------------------------------------------------------------------------------------------


@dataclass
class Witness:
    """What a workload was told: the groups confirmed to it, the one under way, and how far it allowed trimming."""

    confirmed: list[tuple[int, bytes]] = field(default_factory=list)
    under_way: bytes = b""
    trimmed_to: int = 0
    salt: int = 0

    def open(self, disk: SimDisk) -> Journal:
        self.salt += 1
        return open_journal(disk, salt=self.salt)

    def append(self, journal: Journal, payload: bytes) -> None:
        self.under_way = payload
        group = journal.append([payload], urgent=True)
        assert group is not None
        self.confirmed.append((group, payload))
        self.under_way = b""

    def trim(self, journal: Journal, group: int) -> None:
        self.trimmed_to = max(self.trimmed_to, group)
        journal.trim_front(group)

    def check(self, journal: Journal) -> list[tuple[int, bytes]]:
        """Returns the content, having found it right."""
        content = [(group, payload) for group, payload in journal.groups(None) if payload]
        kept = [(group, payload) for group, payload in self.confirmed if group >= journal.first_group]
        assert content[: len(kept)] == kept
        assert [payload for _, payload in content[len(kept) :]] in ([], [self.under_way])
        assert journal.first_group <= max(1, self.trimmed_to)
        return content


def write_three(disk: SimDisk, witness: Witness) -> None:
    journal = witness.open(disk)
    for number in range(3):
        witness.append(journal, b"%d" % number * (700 * number + 5))


def change_segment(disk: SimDisk, witness: Witness) -> None:
    journal = witness.open(disk)
    journal.prepare()
    witness.append(journal, b"a" * (S - 2048))
    witness.append(journal, b"b" * 1500)
    witness.append(journal, b"c")


def prove_and_reopen(disk: SimDisk, witness: Witness) -> None:
    journal = witness.open(disk)
    witness.append(journal, b"a" * 600)
    proof = journal.prove()
    assert proof is not None
    journal.write(proof, ())
    journal.durable(proof)
    journal.close()
    witness.append(witness.open(disk), b"b" * 600)


def trim_and_recycle(disk: SimDisk, witness: Witness) -> None:
    journal = witness.open(disk)
    journal.prepare()
    journal.prepare()
    for letter in (b"a", b"b", b"c"):
        witness.append(journal, letter * (S - 1500))
    witness.trim(journal, 2 * SECTORS + 1)
    witness.append(journal, b"d" * 1200)
    witness.append(journal, b"e" * (S - 1500))


Workload = Callable[[SimDisk, Witness], None]
WORKLOADS: list[Workload] = [write_three, change_segment, prove_and_reopen, trim_and_recycle]


def changing_calls(workload: Workload) -> list[int]:
    disk = SimDisk()
    workload(disk, Witness())
    return [number for number, call in enumerate(disk.history, start=1) if call in CHANGING_CALLS]


def check_recovery_of(state: SimDisk, witness: Witness) -> None:
    """Recovery is right, a second one changes nothing, and neither does a crash at any call of the first."""
    clean = copy_of(state)
    journal = open_journal(state, salt=77)
    opening_calls = [number for number, call in enumerate(state.history, start=1) if call in CHANGING_CALLS]
    content = witness.check(journal)
    again = open_journal(state.crash(), salt=78)
    assert witness.check(again) == content
    assert not [name for name in state.names() if name.startswith("unready")]
    for call in opening_calls:
        interrupted = copy_of(clean)
        interrupted.fail_at(call, Fault.CRASH)
        with pytest.raises(SimCrash):
            open_journal(interrupted, salt=77)
        for left in crash_states(interrupted, states_max=4, samples=4, seed=call):
            assert witness.check(open_journal(left, salt=79)) == content


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_crash_at_every_disk_call_loses_nothing_confirmed_and_invents_nothing(workload: Workload) -> None:
    for call in changing_calls(workload):
        disk = SimDisk()
        disk.fail_at(call, Fault.CRASH)
        witness = Witness()
        with pytest.raises(SimCrash):
            workload(disk, witness)
        for number, state in enumerate(crash_states(disk, states_max=256, seed=call)):
            if number % 16 == 0:
                check_recovery_of(state, witness)
            else:
                witness.check(open_journal(state, salt=77))


FAULTS = [Fault.SHORT_WRITE, Fault.NO_SPACE, Fault.IO_ERROR, Fault.SYNC_FAILS]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name.lower())
def test_every_disk_call_failing_once_loses_nothing_confirmed(workload: Workload, kind: Fault) -> None:
    probe = SimDisk()
    workload(probe, Witness())
    for call in range(1, probe.calls + 1):
        disk = SimDisk()
        disk.fail_at(call, kind)
        witness = Witness()
        with suppress(StorageError):
            workload(disk, witness)
        # Either the power fails at once, or the process restarts on the same page cache and the power fails later.
        for left in crash_states(disk, states_max=8, samples=8, seed=call):
            witness.check(open_journal(left, salt=77))
        content = witness.check(open_journal(disk, salt=77))
        assert witness.check(open_journal(disk.crash(), salt=78)) == content, "what was revealed stays"


def test_second_half_of_a_group_reached_the_disk_first_half_did_not() -> None:
    """The client retries: the torn group is cut whole, and its retry is the only copy."""
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([b"before"])
    payload = b"first half" * 100 + b"second half" * 100
    disk.fail_at(disk.calls + 2, Fault.CRASH)
    with pytest.raises(SimCrash):
        journal.append([payload])
    sectors = frame_bytes(len(payload)) // 512
    answers = iter([0] * (sectors // 2) + [1] * (sectors - sectors // 2))
    after = disk.crash(lambda _: next(answers))
    torn = after.open(segment_name(0)).pread(sectors * 512, 1536)
    assert torn[:512] == bytes(512)
    assert b"second half" in torn[sectors // 2 * 512 :]
    recovered = open_journal(after, salt=2)
    assert payloads(recovered) == [b"before"]
    recovered.append([payload])
    assert payloads(open_journal(after.crash(), salt=3)) == [b"before", payload]


def test_fdatasync_failed_restart_power_cut() -> None:
    """The page cache shows the group as clean although it is not on the device. What a restart reveals must stay."""
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([b"before"])
    disk.fail_at(disk.calls + 2, Fault.SYNC_FAILS)
    with pytest.raises(StorageError):
        journal.append([b"doubtful" * 200])
    assert payloads(open_journal(disk.crash(), salt=9)) == [b"before"], "it was not on the device"
    restarted = open_journal(disk, salt=2)
    assert payloads(restarted) == [b"before", b"doubtful" * 200], "the restart saw it, and reveals it"
    assert payloads(open_journal(disk.crash(), salt=3)) == [b"before", b"doubtful" * 200]


def test_fdatasync_failed_and_the_power_fails_at_any_call_of_the_restart() -> None:
    """The proof must not reach the device before the group that it proves: that would look like damage."""
    for call in range(1, 100):
        disk = SimDisk()
        journal = open_journal(disk)
        journal.append([b"before"])
        disk.fail_at(disk.calls + 2, Fault.SYNC_FAILS)
        with pytest.raises(StorageError):
            journal.append([b"doubtful" * 100])
        disk.fail_at(disk.calls + call, Fault.CRASH)
        try:
            open_journal(disk, salt=2)
        except SimCrash:
            for state in crash_states(disk):
                found = payloads(open_journal(state, salt=3))
                assert found in ([b"before"], [b"before", b"doubtful" * 100])
        else:
            assert call > 8
            return
    pytest.fail("recovery takes too many calls")


def test_killed_between_rename_and_directory_sync_then_power_cut() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    journal.prepare()
    journal.append([b"a" * (S - 2048)])
    disk.fail_at(disk.calls + 2, Fault.CRASH)
    with pytest.raises(SimCrash):
        journal.append([b"b" * 2000], urgent=True)
    seen = copy_of(disk)
    assert segment_name(1) in seen.names()
    recovered = open_journal(seen, salt=2)
    assert recovered.stats[:2] == (1, 1), "the unused segment is a spare again"
    recovered.append([b"b" * 2000], urgent=True)
    assert payloads(open_journal(seen.crash(), salt=3)) == [b"a" * (S - 2048), b"b" * 2000]


def test_crash_while_segments_beyond_the_end_become_spares_leaves_no_gap() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([b"a"])
    for segment in (1, 2, 3):
        prepare_file(disk, segment_name(segment), journal._files.header)
    witness = Witness(confirmed=[(2, b"a")])
    check_recovery_of(copy_of(disk), witness)
    reopened = open_journal(disk, salt=2)
    assert reopened.stats[:2] == (1, 3)


@pytest.mark.parametrize("seed", range(40))
def test_random_life_with_many_crashes(seed: int) -> None:
    """Crash upon crash, so that remains of several cut groups and recycled files lie under the newest ones."""
    chance = random.Random(seed)
    disk, witness = SimDisk(), Witness()
    for _ in range(8):
        disk.fail_at(disk.calls + chance.randrange(1, 120), Fault.CRASH)
        try:
            journal = witness.open(disk)
            # What was under way when the power failed was found or cut; from here on it is settled either way.
            witness.confirmed = witness.check(journal)
            witness.under_way = b""
            for number in range(30):
                while journal.prepare():
                    pass
                witness.append(journal, bytes([seed, number]) * chance.choice([1, 300, 800, 3000, 7000]))
                if chance.random() < 0.3:
                    witness.trim(journal, chance.choice(witness.confirmed)[0])
        except SimCrash:
            pass
        disk = disk.crash(chance.randrange)
    witness.check(witness.open(disk))


def test_same_salts_give_the_same_bytes() -> None:
    disks = [SimDisk(), SimDisk()]
    for disk in disks:
        trim_and_recycle(disk, Witness())
    assert disks[0].history == disks[1].history
    for name in disks[0].names():
        assert disks[0].open(name).pread(S, 0) == disks[1].open(name).pread(S, 0)


def test_leftover_unready_files_are_removed() -> None:
    disk = SimDisk()
    disk.open(unready_name(0), create=True)
    open_journal(disk)
    disk.open(unready_name(3), create=True)
    open_journal(disk, salt=2)
    assert disk.names() == [segment_name(0)]


def test_start_says_where_it_cut_a_torn_group_off() -> None:
    disk = MemoryDisk()
    journal = Journal.open(disk, segment_bytes=SEGMENT_BYTES_MIN, salt=1)
    assert journal.cut_at == ""
    journal.append([b"first"])
    group = journal.append([b"last" * 300])
    assert group is not None
    position = group * FRAME_ALIGN_BYTES
    disk.open(segment_name(0)).pwritev([b"\xff"], position + 1_000)
    again = Journal.open(disk, segment_bytes=SEGMENT_BYTES_MIN, salt=2)
    assert again.cut_at == f"{segment_name(0)} at byte {position}"
    assert Journal.open(disk, segment_bytes=SEGMENT_BYTES_MIN, salt=3).cut_at == "", "it is proven now"
