"""Both codecs under test: the one run from source, and the compiled one if it was built."""

import pytest

from bench.codec import pure_modules
from oncelog.core import batch, batch_arrow

PURE_BATCH, PURE_ARROW = pure_modules()
IS_COMPILED = not str(batch.__file__).endswith(".py")

CODECS = [pytest.param(PURE_BATCH, id="pure")] + ([pytest.param(batch, id="compiled")] if IS_COMPILED else [])
ARROWS = [pytest.param((PURE_BATCH, PURE_ARROW), id="pure")] + (
    [pytest.param((batch, batch_arrow), id="compiled")] if IS_COMPILED else []
)
