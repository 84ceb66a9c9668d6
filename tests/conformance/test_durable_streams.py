"""The public conformance suite of durable-streams, run by vitest against a server of ours.

Every test of the suite must pass but those of the sections in `NOT_YET`. They are run all the same, and those that pass
are named, so that an entry which has become too wide is seen.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.http_node import ROOT, find_node, install
from bench.http_server import Server, start_ours

# The tests of the pinned release. A run that finds fewer has lost some on the way.
SUITE_TESTS = 338

# Two tests wait the whole time without a limit of their own, and vitest's is 5 seconds.
LONG_POLL_MS = 500


class LeftOut(NamedTuple):
    what: str
    reason: str
    # Titles of the suite's top-level sections; a section is left out whole.
    sections: tuple[str, ...]


NOT_YET = (
    LeftOut(
        "forks",
        "a stream that shares the beginning of another one is not built",
        (
            "Fork - Creation",
            "Fork - Reading",
            "Fork - Appending",
            "Fork - Recursive",
            "Fork - Live Modes",
            "Fork - Deletion and Lifecycle",
            "Fork - TTL and Expiry",
            "Fork - JSON Mode",
            "Fork - Edge Cases",
        ),
    ),
    LeftOut(
        "TTL",
        "streams do not expire; both tests of the HEAD section ask for the expiry that was set",
        (
            "TTL and Expiry Validation",
            "TTL and Expiry Edge Cases",
            "TTL Expiration Behavior",
            "HEAD Metadata Edge Cases",
        ),
    ),
    LeftOut("subscriptions", "webhooks and pull-wake are not built", ("Reserved subscription APIs",)),
)


class Result(NamedTuple):
    section: str
    title: str
    passed: bool
    failure: str


def run_suite(url: str, report: Path) -> list[Result]:
    directory = install(ROOT / "tests" / "conformance")
    command = [*find_node().node, "node_modules/vitest/vitest.mjs", "run", "--root", "."]
    # A test of the suite makes 100,000 comparisons: on a busy machine that takes longer than vitest's five seconds.
    command += ["--reporter=json", f"--outputFile={report}", "--testTimeout=60000"]
    environment = os.environ | {"SERVER_URL": url}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    # vitest's own status is 1 when any test failed, those left out among them.
    assert report.exists(), f"vitest made no report:\n{done.stdout}{done.stderr}"
    files = json.loads(report.read_text())["testResults"]
    return [
        Result(
            test["ancestorTitles"][0],
            " > ".join([*test["ancestorTitles"], test["title"]]),
            test["status"] == "passed",
            "\n".join(test["failureMessages"] or ()),
        )
        for file in files
        for test in file["assertionResults"]
    ]


def listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common())


def first_lines(text: str) -> str:
    return "\n      ".join(text.splitlines()[:3])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = start_ours(tmp_path / "data", long_poll_ms=LONG_POLL_MS)
    yield running
    running.close()


@pytest.mark.timeout(600)  # the first run installs the packages
def test_server_passes_the_public_suite(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = run_suite(server.url, tmp_path / "report.json")
    assert len(results) == SUITE_TESTS
    left_out = {section: entry for entry in NOT_YET for section in entry.sections}
    unknown = left_out.keys() - {result.section for result in results}
    assert not unknown, f"NOT_YET names sections that the suite does not have: {sorted(unknown)}"

    asked = [result for result in results if result.section not in left_out]
    others = [result for result in results if result.section in left_out]
    failed = [result for result in asked if not result.passed]
    also = [result for result in others if result.passed]
    sizes = Counter(left_out[result.section].what for result in others)
    extra = Counter(left_out[result.section].what for result in also)
    passed = len(asked) - len(failed)
    with capfd.disabled():
        # A worker of pytest-xdist has no stdout of its own, but stderr is that of pytest itself.
        print(
            f"\nconformance: {passed} of {len(results)} passed, {len(others)} left out ({listed(sizes)})"
            f"; also passing: {listed(extra) or 'none'}",
            file=sys.stderr,
        )
    for result in also:
        print(f"also passing: {result.title}")
    assert not failed, f"{len(failed)} of {len(asked)} failed:\n" + "\n".join(
        f"  {result.title}\n      {first_lines(result.failure)}" for result in failed
    )
