"""The command line: one file per verb, put together in `main.py`. Exit codes are in `exits.py`."""
