"""A driver of its own that lands or ingests, for tests that kill it in the middle.

    python -m tests.pipelines.lander '{"pipeline": "land", "at": ["committed", 1], "options": {…}}'

At the named stage of the named batch it says `reached` and kills itself, its JVM and its Python workers: nothing can be
tidied up. Without `at` it runs to its end and says `done`. `session` names another master and its settings.
"""

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def killed_at(pipeline: str, stage: str, batch: int, **options: Any) -> str:
    """Runs the pipeline until it kills itself; what it said last."""
    return run_to_end(pipeline, None, at=[stage, batch], **options)


def run_to_end(
    pipeline: str, session: tuple[str, dict[str, str]] | None, at: list[Any] | None = None, **options: Any
) -> str:
    """The same without a kill, unless it is said `at` which stage of which batch."""
    told = {"pipeline": pipeline, "at": at or ["", -1], "options": options, "session": session}
    command = [sys.executable, "-m", "tests.pipelines.lander", json.dumps(told)]
    with Popen(command, cwd=ROOT, stdout=PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        said = [line.strip() for line in process.stdout if line.startswith(("reached", "done"))]
        process.wait()
    return said[-1] if said else ""


def main() -> None:
    from oncelog import pipelines
    from tests.pipelines.conftest import started

    told = json.loads(sys.argv[1])

    def watch(progress: pipelines.Progress) -> None:
        stage, batch = told["at"]
        if progress.stage == stage and progress.batch == batch and progress.total_input_rows >= told.get("rows", 0):
            print("reached", flush=True)
            os.killpg(0, signal.SIGKILL)

    if told.get("session") is None:
        session = started()
    else:
        master, conf = told["session"]
        session = pipelines.session(master, "oncelog-tests", log_level="OFF", **conf)
    getattr(pipelines, told["pipeline"])(session, progress=watch, **told["options"])
    print("done", flush=True)


if __name__ == "__main__":
    main()
