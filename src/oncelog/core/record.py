"""Record headers that mean something to the log. Open to clients: they write them, core reads them."""

from typing import Final

MESSAGE_ID_HEADER: Final = "oncelog.message-id"
"""Carries a message id where a record has no other place for it, as in a stage."""
