"""Whole-engine runs from a seed: many clients, steps in any order, power cuts, restarts, a sleeping index builder.

    python -m tests.crash.sim_loop --seeds N [--first-seed S]     N runs; exit 1 at the first that fails
    python -m tests.crash.sim_loop --full                         every workload of up to three operations, every cut

All chance comes from the seed, so a failing run is repeated exactly by its number. The judges are those of
`sim_explorer`, at whatever moments the seed brings about.
"""

import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from oncelog.core.command import GetReceipt, GetStream, GetTopic, GetTxn
from oncelog.core.outcome import Outcome
from oncelog.errors import OncelogError
from oncelog.testing.sim_disk import SimCrash, lose_all
from oncelog.testing.sim_engine import Answer, IndexAfterCrash, SimEngine, WatchedDisk
from oncelog.testing.sim_image import Image
from tests.crash.sim_explorer import FATES, Base, Explorer, nothing_cached
from tests.crash.sim_operations import OPERATIONS, Checkpoint, Client, Step, check_whole, set_up

STEPS = 120
CLIENTS_MAX = 6
CRASH_CALLS_MAX = 12
CHECKPOINT_BYTES = 6 * 1024
"""Small, so that generations are sealed by the bytes written, in the middle of things."""


class SimRun:
    """One run. `log` says what happened, line by line; equal seeds give equal logs."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.log: list[str] = []
        self._clients: list[Client] = []
        self._sent: list[Client] = []
        """Clients that wait for an answer, in the order in which they sent."""
        self._history: dict[int, Image] = {}
        self._needs_entry = 0
        self.crashes = 0
        engine = SimEngine(WatchedDisk(), checkpoint_bytes=CHECKPOINT_BYTES)
        set_up(engine)
        self._take_over(engine)

    def run(self) -> None:
        """Steps until the seed has had enough, then every client to its end, then the verdict."""
        for _ in range(STEPS):
            self._step()
        self._crash()
        self._engine.builds_at_once = True
        for _ in range(200):
            waiting = [client for client in self._clients if client.next_step is not None]
            if not waiting:
                break
            for client in waiting:
                self._send(client)
            self._engine.flush()
        assert all(client.next_step is None for client in self._clients), "a client never came to its end"
        check_whole(self._engine.contents(), self._clients)
        self._check_once()
        self._engine.close()
        contents = self._engine.contents()
        for fate in FATES:
            assert self._engine.crash(lose_all, fate).contents() == contents
        self._say(f"end at entry {self._engine.commits.state.entry_number} with {sum(map(len, contents))} streams")

    # --- steps -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        chance = self._chance
        try:
            match chance.choice("ccccssswwwwaaaaqqrrtTbkxX"):
                case "c":
                    self._new_client()
                case "s":
                    if self._engine._in_flight is None:
                        self._engine.seal()
                case "w":
                    self._write()
                case "a":
                    self._engine.answer()
                case "q":
                    self._query()
                case "r":
                    self._resend_confirmed()
                case "t":
                    self._engine.clock.advance_ms(chance.choice((0, 1, 700, -300)))
                case "T":
                    self._engine.flush()
                    self._engine.tick(1)
                case "b":
                    self._engine.builds_at_once = chance.random() < 0.5
                    self._engine.build()
                case "k":
                    self._engine.flush()
                    if not self._engine.generations.building:
                        self._engine.checkpoint()
                case "x":
                    self._arm_crash()
                case "X":
                    self._restart()
            self._send_all()
        except SimCrash:
            self._crash()
        self._judge_running()

    def _new_client(self) -> None:
        if sum(client.next_step is not None for client in self._clients) >= CLIENTS_MAX:
            return
        # Not the one that deletes a topic: what others had written there could no longer be counted.
        operation = self._chance.choice([operation for operation in OPERATIONS if operation.name != "delete topic"])
        self._clients.append(Client(operation, len(self._clients)))

    def _send_all(self) -> None:
        for client in self._clients:
            if client.next_step is not None and client not in self._sent:
                self._send(client)

    def _send(self, client: Client) -> None:
        step: Step | None = client.next_step
        assert step is not None
        if isinstance(step, Checkpoint):
            client.tell(None)
            return
        self._sent.append(client)

        def told(outcome: Outcome) -> None:
            self._sent.remove(client)
            self._say(f"client {client.number} ({client.operation.name}): {outcome}")
            client.tell(outcome)

        self._engine.submit(step).then(told)

    def _write(self) -> None:
        engine = self._engine
        if engine._in_flight is not None:
            engine.write()
            if self._chance.random() < 0.2:
                self._send_all()
            engine.written()

    def _query(self) -> None:
        number = self._chance.randrange(len(self._clients) + 1)
        for command in (GetStream("a"), GetTopic(f"new{number}"), GetTxn(f"txn{number}")):
            self._engine.submit(command).then(lambda outcome: self._say(f"asked: {outcome}"))
        self._engine.submit(GetReceipt("a", 0, b"id-%d-0" % number))

    def _resend_confirmed(self) -> None:
        """A client did not hear its answer and sends again: the same command, which must change nothing."""
        for client in self._clients:
            if client.operation.name == "append by id" and client.next_step is None and self._chance.random() < 0.5:
                step = client.operation.script(client.number).send(None)
                assert not isinstance(step, Checkpoint)
                self._engine.submit(step)

    # --- the end of a process --------------------------------------------------------------------------------------

    def _arm_crash(self) -> None:
        """Some changing call from now on does not return."""
        assert isinstance(self._engine.disk, WatchedDisk)
        self._engine.disk.watch = self._cut_after(self._chance.randint(1, CRASH_CALLS_MAX))

    def _cut_after(self, calls: int) -> Callable[[str], None]:
        left = itertools.count(calls - 1, -1)

        def watch(call: str) -> None:
            if next(left) == 0:
                raise SimCrash(call)

        return watch

    def _restart(self) -> None:
        """A clean stop and a new start."""
        self._engine.close()
        self._sent.clear()
        self._say("clean restart")
        self._take_over(self._engine.reopen(WatchedDisk.of(self._engine.disk)))

    def _crash(self) -> None:
        self.crashes += 1
        self._sent.clear()
        chance = self._chance
        fate = chance.choice(FATES)
        old = self._engine
        disk = WatchedDisk.of(old.disk.crash(chance.choice((lose_all, chance.randrange))))
        # Recovery may be cut as well, several times.
        while chance.random() < 0.3:
            disk.watch = self._cut_after(chance.randint(1, CRASH_CALLS_MAX))
            with suppress(SimCrash):
                old.reopen(disk, fate)
            disk = WatchedDisk.of(disk.crash(chance.randrange))
        after = old.reopen(disk, fate)
        entry_number = after.commits.state.entry_number
        self._say(f"power cut, {fate.name}: entry {entry_number} of {old.commits.state.entry_number}")
        assert entry_number >= self._needs_entry, "a confirmed write is lost, or an answer ran ahead"
        assert entry_number >= old.view.entry_number, "readers saw what a power cut undid"
        difference = self._history[entry_number].difference(after.image())
        assert not difference, f"recovery came to another state: {difference}"
        self._take_over(after)

    def _take_over(self, engine: SimEngine) -> None:
        self._engine = engine
        engine.builds_at_once = self._chance.random() < 0.5
        self._history = {}
        self._remember()
        engine.commits.on_entry = lambda _entry: self._remember()
        engine.on_answer = self._at_answer

    # --- judging ---------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        image = self._engine.image()
        self._history[image.entry_number] = image

    def _at_answer(self, answer: Answer) -> None:
        self._needs_entry = max(self._needs_entry, answer.needs_entry)
        if answer.needs_entry > self._engine.view.entry_number:
            raise AssertionError(f"answered before it was revealed: {answer}")

    def _judge_running(self) -> None:
        engine = self._engine
        image = engine.image()
        difference = self._history[image.entry_number].difference(image)
        assert not difference, f"the running engine lost or changed something: {difference}"
        contents = engine.contents()
        check_whole(contents, self._clients)
        if self._chance.random() < 0.2:
            survivor = engine.crash(lose_all, IndexAfterCrash.KEPT)
            entry_number = survivor.commits.state.entry_number
            assert entry_number >= max(self._needs_entry, engine.view.entry_number), "revealed before it was durable"
            if entry_number == engine.view.entry_number:
                assert survivor.contents() == contents

    def _check_once(self) -> None:
        """Every value of a client that was not refused is there, once."""
        seen: dict[tuple[str, bytes | None], int] = {}
        for (topic, _), partition in self._engine.contents().items():
            assert partition.stable == partition.tail, "a txn is open although its client has ended it"
            for _, value in partition.records:
                seen[topic, value] = seen.get((topic, value), 0) + 1
        for client in self._clients:
            for written in client.operation.written(client.number):
                counts = [seen.get(place, 0) for place in written.values]
                wanted = 0 if written.never else 1
                assert counts == [wanted] * len(counts), f"client {client.number}: {written} is there {counts} times"

    def _say(self, line: str) -> None:
        self.log.append(line)


def run_seed(seed: int) -> SimRun:
    """One run to its end. Raises what went wrong."""
    with nothing_cached():
        sim = SimRun(seed)
        sim.run()
    return sim


def explore_workloads(chosen: tuple[int, int]) -> int:
    """Every workload of so many operations that begins with this one, cut at every call: the survivors judged."""
    length, first = chosen
    bases = (Base(), Base(near_end=True))
    survivors = 0
    with nothing_cached():
        for number, rest in enumerate(itertools.product(OPERATIONS, repeat=length - 1), first):
            for together in (False, True):
                base = bases[(number + together) % 2]
                workload = (OPERATIONS[first], *rest)
                survivors += Explorer(base, workload, together=together, recovery=length == 1).explore()
    return survivors


def explore_everything() -> int:
    """Every workload of one, two and three operations, shared out over all cores. Returns the survivors judged."""
    parts = [(length, first) for length in (1, 2, 3) for first in range(len(OPERATIONS))]
    survivors = 0
    with multiprocessing.Pool() as pool:
        for done, judged in enumerate(pool.imap_unordered(explore_workloads, parts), 1):
            survivors += judged
            print(f"sim: {done} of {len(parts)} parts, {survivors} survivors judged", file=sys.stderr, flush=True)
    return survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.sim_loop", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="explore every workload of up to three operations instead")
    chosen = parser.parse_args(arguments)
    begun = time.monotonic()
    if chosen.full:
        survivors = explore_everything()
        print(f"sim: {survivors} survivors judged, lost 0, doubled 0, {time.monotonic() - begun:.0f} s")
        return 0
    crashes = entries = 0
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        try:
            sim = run_seed(seed)
        except (AssertionError, KeyError, OncelogError) as error:
            print(f"sim: seed {seed} failed: {type(error).__name__}: {error}")
            print(f"repeat it: python -m tests.crash.sim_loop --seeds 1 --first-seed {seed}")
            return 1
        crashes += sim.crashes
        entries += sim._engine.commits.state.entry_number
    seconds = time.monotonic() - begun
    print(f"sim: {chosen.seeds} seeds, {entries} entries, {crashes} crashes, lost 0, doubled 0, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
