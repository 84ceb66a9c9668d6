"""Compiles the path of an append, and the record-batch codec, with mypyc. All else about the package is in pyproject.

The library is an acceleration of modules that run as they stand (`tools/compiled.py` lists them): without mypy, without
a C compiler, with one that fails, or with ONCELOG_PURE=1 in the environment, the package is pure Python and a notice
says so. They are compiled together, so that calls and attributes between them are those of C: all are there or none is.

It carries the fingerprint of all that it was compiled from; the tests look for it, so that a stale one is never taken
for the code beside it.

What is compiled is written with care, since mypyc takes types at their word:
- a slice of bytes whose end lies before its start raises (mypyc 2.4; elsewhere it is empty);
- an attribute that was seen to be None counts as None after a call that sets it, and reading it raises;
- a class that others derive from says `allow_interpreted_subclasses`, and those have no slots of the same names;
- a `msgspec.Struct` cannot be defined there, and its attributes are no faster than anywhere.
"""

import os
import runpy
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TARGET = Path("build/mypyc")


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


def compiled() -> list[Extension]:
    """The library, and beside every source a small extension that leads to it."""
    from mypyc.build import mypycify

    what = runpy.run_path("tools/compiled.py")
    sources = [str(source) for source in what["compiled_sources"]()]
    extensions = mypycify(sources, opt_level="3", debug_level="0", target_dir=str(TARGET), group_name=what["LIBRARY"])
    text = f'__attribute__((used)) static const char fingerprint[] = "{what["fingerprint"]()}";\n'
    fingerprint = TARGET / "fingerprint.c"
    if not fingerprint.exists() or fingerprint.read_text() != text:
        fingerprint.write_text(text)
    for extension in extensions:
        if extension.name.startswith(what["LIBRARY"]):
            extension.sources.append(str(fingerprint))
    return list(extensions)


class AllOrNothing(build_ext):  # type: ignore[misc]
    """A compiler that is there but fails leaves the sources in charge, all of them."""

    def run(self) -> None:
        if self.inplace or self.editable_mode:
            remove_built()
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the package works without
            print(f"oncelog: stays pure Python: {error}")  # noqa: T201
            for path in self.get_outputs():
                Path(path).unlink(missing_ok=True)
            self.extensions: list[Extension] = []


def is_beside_the_sources() -> bool:
    """Whether what is built lies beside its sources, as it does in a checkout. A wheel or an archive is made from a
    checkout whose own library is nobody's business."""
    return "editable_wheel" in sys.argv or "develop" in sys.argv or "--inplace" in sys.argv


def remove_built() -> None:
    """What was built before beside the sources would shadow them, whatever becomes of this build."""
    for path in Path("src").rglob("*.so"):
        path.unlink()


reason = pure_reason()
extensions: list[Extension] = []
if reason is None:
    try:
        extensions = compiled()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - mypyc ends the process where types are not to be had
        reason = f"mypyc cannot translate it here: {error}"
if reason is not None:
    print(f"oncelog: stays pure Python: {reason}")  # noqa: T201
    if is_beside_the_sources():
        remove_built()
setup(ext_modules=extensions, cmdclass={"build_ext": AllOrNothing})
