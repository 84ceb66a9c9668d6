"""Eight clients write to a log at once. It is killed ten times with SIGKILL; nothing is lost, nothing doubled.

python examples/kill_and_audit.py [ROUNDS]
"""

import secrets
import sys

from rich.console import Console

from oncelog.testing.kill.show import run_and_show


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    console = Console()
    console.print("[bold]oncelog[/]: a log that every write reaches exactly once\n")
    console.print(
        "Eight clients write at once: by sequence, by message id, in commits, in\n"
        "transactions, in published batches. In the middle of it the engine is killed,\n"
        f"{rounds} times; requests that got no answer are sent again.\n"
    )
    try:
        sound = run_and_show(rounds, secrets.randbelow(1_000_000), console)
    except KeyboardInterrupt:
        return 130
    if sound:
        console.print("\n[bold green]lost 0, doubled 0[/]: every confirmed record is there, exactly once.")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
