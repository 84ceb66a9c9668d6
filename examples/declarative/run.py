"""Runs the pipeline of this folder once: `python run.py [--into DIR] [what spark-pipelines run takes]`.

It does what one would do by hand: copy the project to a folder of its own, name the storage there, find a Java, and
call `spark-pipelines` with a catalog that outlives the run. The server is that of ONCELOG_URL.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from oncelog.spark import java

HERE = Path(__file__).resolve().parent

CONFIGURATION = {
    "spark.remote": "local[2]",
    # The default catalog is gone when the run ends, and the second run would stumble over the first one's tables.
    "spark.sql.catalogImplementation": "hive",
    "spark.ui.enabled": "false",
}


def copy_project(folder: Path) -> Path:
    """The spec in `folder`, which names a storage beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(HERE / "transformations", folder / "transformations", dirs_exist_ok=True)
    spec = (HERE / "spark-pipeline.yml").read_text()
    storage = (folder / "storage").as_uri()
    (folder / "spark-pipeline.yml").write_text(re.sub(r"(?m)^storage: .*$", lambda _: f"storage: {storage}", spec))
    return folder / "spark-pipeline.yml"


def command(spec: Path, configuration: dict[str, str], arguments: list[str]) -> list[str]:
    """`spark-pipelines` of this very environment."""
    line = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)]
    for name, value in configuration.items():
        line += ["--conf", f"{name}={value}"]
    return line + arguments


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the example pipeline once.", epilog="All else goes to Spark.")
    parser.add_argument("--into", type=Path, default=Path("orders-pipeline"), help="its folder; kept between runs")
    options, others = parser.parse_known_args()
    if not os.environ.get("ONCELOG_URL"):
        parser.error("ONCELOG_URL is not set: say where the server is, as http://127.0.0.1:4437")
    java.prepare()
    folder = options.into.resolve()
    # The tables and the catalog's database come to lie in the working directory.
    return subprocess.run(command(copy_project(folder), CONFIGURATION, others), cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
