"""`python -m bench NAME`: run one benchmark. Each prints its rows beside a peer or the raw device, in the same run."""

import importlib
import sys

NAMES = (
    "bsfg",
    "codec",
    "cold_reads",
    "id_runs",
    "engine",
    "growth",
    "http",
    "http_claim",
    "http_layer",
    "http_path",
    "kafka",
    "nats",
    "spark",
)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        sys.stderr.write(f"usage: python -m bench {'|'.join(NAMES)} [options]\n")
        return 2
    name = sys.argv.pop(1)
    module = importlib.import_module(f"bench.{name}")
    module.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
