"""Settings for every test. Fixtures live beside the tests that use them."""

import signal

from hypothesis import settings

# A shared machine stalls now and then: a slow example is no failure, pytest's timeout catches the hung ones. The blob
# lets anyone replay a failure that only another machine found.
settings.register_profile("oncelog", deadline=None, print_blob=True)
settings.load_profile("oncelog")

# A shell hands an ignored SIGINT on to what it starts in the background, and every process of a test would inherit it:
# those that are interrupted would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
