"""Builds the record-batch codec with mypyc. All else about the package is in pyproject.toml.

The extension is an acceleration of a module that runs as it stands: without mypy, without a C compiler, or with
ONCELOG_PURE=1 in the environment, the package is pure Python and a notice says so.

Every extension carries the SHA-256 of the source it was compiled from; a test looks for it, so that a stale one is
never taken for the code beside it.
"""

import hashlib
import os
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

COMPILED = ("src/oncelog/core/batch.py", "src/oncelog/core/batch_arrow.py")
FINGERPRINT_PREFIX = "oncelog-source-sha256:"


def pure_reason() -> str | None:
    """Why nothing can or shall be compiled; None if it can."""
    if os.environ.get("ONCELOG_PURE") == "1":
        return "ONCELOG_PURE=1"
    try:
        import mypyc.build  # noqa: F401
    except ImportError:
        return "mypy is not installed"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    return None


def compiled(source: str) -> list[Extension]:
    """The extension of one module. Modules are compiled apart, so that each is one file beside its source."""
    from mypyc.build import mypycify

    extensions = mypycify([source], opt_level="3", debug_level="0", target_dir="build/mypyc")
    digest = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    fingerprint = Path("build/mypyc") / f"fingerprint_{Path(source).stem}.c"
    text = f'__attribute__((used)) static const char fingerprint[] = "{FINGERPRINT_PREFIX}{digest}";\n'
    if not fingerprint.exists() or fingerprint.read_text() != text:
        fingerprint.write_text(text)
    for extension in extensions:
        extension.sources.append(str(fingerprint))
        # A compiler that is there but fails leaves the pure module in charge.
        extension.optional = True
    return extensions


reason = pure_reason()
if reason is not None:
    print(f"oncelog: the record-batch codec stays pure Python: {reason}")  # noqa: T201
setup(ext_modules=[] if reason is not None else [extension for source in COMPILED for extension in compiled(source)])
