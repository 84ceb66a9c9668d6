"""A consumer that leaves too much unconfirmed: new facts are refused, retries are answered, and nothing is dropped."""

from tests.cli.running import serving
from tests.conformance.bsfg.boundary import Boundary, Refused

OBJECT = '{"text": "%s"}' % ("x" * 4_000)


def test_new_facts_are_refused_above_the_share_and_taken_again_once_it_is_confirmed() -> None:
    settings = ("--set", "bsfg.backlog_bytes_max=65536")
    with serving("--in-memory", "--any-port", "--zone", "plant", *settings) as server:
        node = Boundary(server.url)
        first = node.fact(object_json=OBJECT)
        node.call("AppendFact", first)
        node.fetch("c")
        count = 1
        refused: Refused | None = None
        while refused is None:  # it is looked at once a second
            try:
                node.append(object_json=OBJECT)
                count += 1
            except Refused as error:
                refused = error
        assert (refused.code, refused.status) == ("resource_exhausted", 429)
        assert "consumer 'c'" in refused.message
        assert count * 4_000 > 0.8 * 65_536
        assert node.call("AppendFact", first)["duplicate"], "a retry is answered"
        _, _, body = node.request("GET", "/bsfg/status")
        assert b'"fill_percent":' in body
        while page := node.fetch("c"):
            node.call("ConfirmReceipt", {"consumer_name": "c", "sequences": [fact["sequence"] for fact in page]})
        for _ in range(100_000):
            try:
                assert node.append(object_json=OBJECT) == count + 1
            except Refused:
                continue
            break
