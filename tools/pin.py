"""Rewrite constraints.txt, every package that `make setup` installs, and constraints-spark.txt, what `make spark`
installs over them; with version and hashes, and nothing else.

pip-compile resolves pyproject.toml (runtime + dev) in a venv of its own, so that the resolver is not a dependency.
Versions already in constraints.txt are kept unless --upgrade is given. All published files of a version are hashed,
wheels of every platform and the source, so that one file serves every machine.

Whatever index, mirror or folder pip is told to use on this machine stays on this machine: only names, versions and
hashes are copied out of pip-compile's answer, and a line of any other kind stops the script.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {ROOT / "constraints.txt": ["dev"], ROOT / "constraints-spark.txt": ["dev", "spark", "declarative"]}

HEADER = """\
# Written by `make pin`; do not edit. Names, versions and hashes only: pip knows by itself where to ask.
"""

PIN_LINE = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( ; [^\\]+)? \\")
HASH_LINE = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def keep_pins(compiled: str) -> str:
    """The pins of pip-compile's output. Raises on a line that is neither pin, hash, comment nor empty."""
    kept: list[str] = []
    for line in compiled.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not PIN_LINE.fullmatch(line) and not HASH_LINE.fullmatch(line):
            raise ValueError(f"neither a pin nor a hash: {line.split()[0]!r}")
        kept.append(line)
    return HEADER + "\n".join(kept) + "\n"


def compile_pins(constraints: Path, extras: list[str], *, upgrade: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="oncelog-pin-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder, "bin", "python"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-tools"], check=True)

        output = Path(folder, "compiled.txt")
        if constraints.exists():
            output.write_text(constraints.read_text())
        command = [python, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--allow-unsafe"]
        command += ["--strip-extras", "--no-annotate", "--no-header"]
        command += ["--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options"]
        for extra in extras:
            command += ["--extra", extra]
        command += ["--output-file", str(output), "pyproject.toml"]
        if upgrade:
            command.append("--upgrade")
        # A local folder of wheels would be hashed in place of the published files.
        environment = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        return output.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite constraints.txt.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    for constraints, extras in EXTRAS.items():
        text = keep_pins(compile_pins(constraints, extras, upgrade=arguments.upgrade))
        constraints.write_text(text)
        print(f"{constraints.name}: {text.count('==')} packages, {text.count('--hash=')} hashes")


if __name__ == "__main__":
    main()
