"""What a sink says when the server refuses its batch: ways that lead on, and no other."""

import pytest

from oncelog.client import Client
from oncelog.spark.driver_notes import Grant
from oncelog.spark.options import write_options
from oncelog.spark.publishing import PublishRefused, publish
from tests.spark.flowing import name
from tests.spark.serving import Server


@pytest.mark.parametrize(
    ("source_end", "tracking", "says", "not_said"),
    [
        (b"", "none", "has nothing to go on from. What leads on is acceptNewQuery=true", "two ways"),
        (b"", "checkpoint", "written with sourceTracking=none", "two ways"),
        (b"{}", "none", "leave sourceTracking=none out.* read from startingOffsets=group:", "nothing to go on"),
        (b"{}", "checkpoint", "two ways lead on: read from startingOffsets=group:", "sourceTracking"),
    ],
)
def test_lost_checkpoint_is_told_what_helps(
    server: Server, source_end: bytes, tracking: str, says: str, not_said: str
) -> None:
    application = name("app")
    with Client(server.url) as client:
        fence = client.open_application(application).fence
        client.publish(application, fence, "first", 0, [], source_end=source_end)
    options = write_options({"url": server.url, "sourceTracking": tracking})
    with pytest.raises(PublishRefused, match=says) as refused:
        publish(options, Grant(application, fence), "second", 0, [])
    assert not_said not in str(refused.value)
