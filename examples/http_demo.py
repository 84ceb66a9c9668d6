"""Eight producers write to a server over a bad network. It is killed ten times; nothing is lost, nothing doubled.

python examples/http_demo.py [KILLS]
"""

import secrets
import sys

from rich.console import Console

from oncelog.testing.http_kill.show import run_and_show

LIFE_S = 2.4
"""A server lives half of this on average, and takes a second to start."""


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    console = Console()
    console.print("[bold]oncelog[/]: a log that every write reaches exactly once\n")
    console.print(
        "A server runs, and eight producers write to it at once over HTTP: by sequence,\n"
        "by message id, in commits over three streams, with the Python client. Between\n"
        "them and the server the network drops answers, cuts and delays connections.\n"
        f"In the middle of it the server is killed with SIGKILL, {kills} times. Whoever got\n"
        "no answer sends again.\n"
    )
    try:
        sound = run_and_show(kills, secrets.randbelow(1_000_000), console, proxy=True, kill_within_s=LIFE_S)
    except KeyboardInterrupt:
        return 130
    if sound:
        console.print("\n[bold green]lost 0, doubled 0[/]: every confirmed record is there, exactly once.")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
