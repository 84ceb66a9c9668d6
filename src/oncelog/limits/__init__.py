"""Every bound, with its unit and its reason: one module per layer and one per face. A leaf. Relations between bounds
are asserted at import.

Use them as `from oncelog import limits` and `limits.NAME`. A new bound goes into the module of its layer or face; a new
module gets one line here. `docs/limits.md` lists them; a test compares the two.
"""

from oncelog.limits.core import *
from oncelog.limits.engine import *
from oncelog.limits.http import *
from oncelog.limits.kafka import *
from oncelog.limits.nats import *
from oncelog.limits.servers import *
from oncelog.limits.storage import *
from oncelog.limits.units import *

assert ENTRY_BYTES_MAX < GROUP_BYTES_MAX < SEGMENT_BYTES_DEFAULT
assert TXN_RANGES_MAX * TXN_RANGE_BYTES + COMMIT_APPENDS_MAX * TXN_STREAM_BYTES < BATCH_BYTES_MAX
assert STAGES_PER_PUBLISH_MAX * PUBLISHED_STAGE_BYTES < BATCH_BYTES_MAX
assert CHECKPOINT_BYTES + 2 * GROUP_BYTES_MAX <= MIRROR_BYTES
assert TURN_RECORD_BYTES > PRODUCER_NAME_BYTES_MAX + PRODUCER_SESSION_BYTES_MAX + CLAIM_DIGEST_BYTES_MAX + 256
assert SEGMENT_BYTES_MIN % FRAME_ALIGN_BYTES == 0
assert KAFKA_FENCE_EPOCH_MAX == KAFKA_EPOCH_MAX + 1
assert TXN_TIMEOUT_MS_MIN <= TXN_TIMEOUT_MS_DEFAULT <= TXN_TIMEOUT_MS_MAX < TXN_ID_EXPIRY_MS
