"""The compiled codec is the code beside it, and is there whenever it could be built."""

import hashlib
from pathlib import Path

import pytest

from oncelog.core import batch, batch_arrow
from tests.core.batch_codecs import IS_COMPILED

CORE = Path(batch.__file__).parent


@pytest.mark.parametrize("name", ["batch", "batch_arrow"])
def test_compiled_codec_was_built_from_the_source_beside_it(name: str) -> None:
    """A stale extension shadows its source silently; setup.py leaves the source's digest in every one it builds."""
    extensions = [*CORE.glob(f"{name}.*.so"), *CORE.glob(f"{name}__mypyc.*.so")]
    fingerprint = b"oncelog-source-sha256:" + hashlib.sha256((CORE / f"{name}.py").read_bytes()).hexdigest().encode()
    for extension in extensions:
        assert fingerprint in extension.read_bytes(), f"{extension.name} is stale: run make setup"


def test_both_codec_modules_are_compiled_or_neither() -> None:
    assert str(batch_arrow.__file__).endswith(".py") == (not IS_COMPILED)
