"""What the sink reads of a query's checkpoint: the query's id, and which source offsets a batch ends at.

Spark writes `offsets/<batch>` before it runs the batch, never afterwards, so it is there when the batch is published:

    v1 | metadata | one line per source: its offset in JSON, or "-"
    v2 | metadata | the same with "<source id>:" before each

If it is not there, offsets are being written behind the batch (asynchronous progress, real-time mode): a batch number
then does not stand for one input, and the sink refuses.
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit


class CheckpointUnreadable(Exception):
    """The checkpoint is not there, or not in a form that is known."""


def _local(checkpoint: str) -> Path | None:
    """The folder, if it is in a file system of this machine."""
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else checkpoint)
    return None


def _read(checkpoint: str, name: str) -> str:
    folder = _local(checkpoint)
    try:
        if folder is not None:
            return (folder / name).read_text()
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(checkpoint)
        with system.open_input_stream(f"{path}/{name}") as stream:
            text: str = stream.read().decode()
            return text
    except (OSError, ValueError) as error:
        raise CheckpointUnreadable(f"{checkpoint}/{name}: {error}") from error


def query_id(checkpoint: str) -> str:
    """The query's id, the same for every run of it."""
    try:
        found = json.loads(_read(checkpoint, "metadata").strip().splitlines()[-1])["id"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CheckpointUnreadable(f"{checkpoint}/metadata does not tell the query's id: {error}") from error
    return str(found)


def _names(checkpoint: str, name: str) -> list[str]:
    """What lies in a folder of the checkpoint; nothing if it is not there."""
    folder = _local(checkpoint)
    try:
        if folder is not None:
            return [path.name for path in (folder / name).iterdir()]
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(checkpoint)
        return [info.base_name for info in system.get_file_info(fs.FileSelector(f"{path}/{name}"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise CheckpointUnreadable(f"{checkpoint}/{name}: {error}") from error


def last_done(checkpoint: str) -> int | None:
    """The last batch that Spark takes for done: the next one begins where it ends. None if there is none."""
    numbers = [int(name) for name in _names(checkpoint, "commits") if name.isascii() and name.isdigit()]
    return max(numbers, default=None)


def sources_at(checkpoint: str, batch: int) -> dict[str, object]:
    """Source → where it stands at the end of the batch, None if it has no offset yet."""
    version, _, *lines = _read(checkpoint, f"offsets/{batch}").split("\n")
    if version not in ("v1", "v2"):
        raise CheckpointUnreadable(f"{checkpoint}/offsets/{batch} has the unknown form {version!r}")
    sources: dict[str, object] = {}
    for number, line in enumerate(lines):
        name, text = line.split(":", 1) if version == "v2" else (str(number), line)
        try:
            sources[name] = None if text == "-" else json.loads(text)
        except ValueError as error:
            raise CheckpointUnreadable(f"{checkpoint}/offsets/{batch}: source {name} is not JSON: {error}") from error
    return sources
