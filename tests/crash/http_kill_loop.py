"""Kill a real server under eight writers that speak HTTP, many times, and audit the log. Exit code 1 on any finding.

python -m tests.crash.http_kill_loop --rounds 300 --seed 7 --proxy
"""

import argparse
import secrets
import sys
from pathlib import Path

from rich.console import Console

from oncelog.testing.http_kill.show import run_and_show


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="http_kill_loop", description="kill a server again and again, then audit")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, help="what is sent and when the kills come; random if not given")
    parser.add_argument(
        "--proxy", action="store_true", help="through a network that drops answers, cuts and delays connections"
    )
    parser.add_argument(
        "--dir", type=Path, help="where to make the log's directory; must be on a real disk to mean much"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    console = Console()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    way = "through the faulty proxy" if options.proxy else "straight"
    console.print(f"{options.rounds} rounds {way}, seed {seed}", highlight=False)
    try:
        return 0 if run_and_show(options.rounds, seed, console, options.dir, proxy=options.proxy) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
