"""Settings for every test. Fixtures live beside the tests that use them."""

from hypothesis import settings

# A shared machine stalls now and then: a slow example is no failure, pytest's timeout catches the hung ones. The blob
# lets anyone replay a failure that only another machine found.
settings.register_profile("oncelog", deadline=None, print_blob=True)
settings.load_profile("oncelog")
