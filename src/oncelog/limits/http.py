"""Bounds of the HTTP face."""

from typing import Final

from oncelog.limits.units import KIB, MIB

# --- HTTP --------------------------------------------------------------------------------------------------------

HTTP_DISCARD_BYTES_MAX: Final = 64 * MIB
"""An oversize body is read to its end up to this, so that its sender hears the answer; a larger one is cut off."""

HTTP_DIGITS_MAX: Final = 19
"""Digits of a number in a header or query: what 64 bits hold. Longer texts are refused before they become numbers."""

HTTP_TEMPLATE_HEAD_BYTES_MAX: Final = 1 * KIB
"""Of a head that a connection keeps, to know the next one by: twenty thousand connections may each keep one."""

HTTP_TEMPLATE_ID_BYTES_MAX: Final = 256
"""Of a message id that may stand in the place of another one in such a head. A request with a longer one is read whole,
as if no head were kept."""

HTTP_LIST_MAX: Final = 1_000
"""Rows of one page of a listing."""

HTTP_LIST_DEFAULT: Final = 100
"""Rows of a page that names no limit: a screen or two."""

HTTP_EARLY_BYTES_MAX: Final = 64 * MIB
"""Bytes of all requests that wait for their turn. Beyond it a gap is answered at once."""

HTTP_CONNECTION_EPOCHS_MAX: Final = 64
"""Producers whose epoch, and whose session, a connection remembers for requests that name neither."""

HTTP_RECEIVE_BYTES: Final = 256 * KIB
"""What one read of a socket brings at most: uvloop's buffer. An unfinished head may exceed its bound by this."""

HTTP_BODIES_BYTES_MAX: Final = 1024 * MIB
"""Bodies above 64 KiB of all connections, chunked or not, while they come in. Beyond it the next one is told to try
again."""

HTTP_BODIES_KEPT_BYTES: Final = 32 * MIB
"""Bodies of catch-up reads kept for the next reader of the same stretch, which need not be read and joined again. Small
beside the memory of the server: a reader of the whole log fills it with bodies that nobody asks for again."""
