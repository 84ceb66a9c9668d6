"""The index: derived from the journal, rebuilt from it at will, never trusted over it."""

import os

# numpy sorts and searches here and never multiplies matrices: without this its BLAS starts a spinning thread per core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
