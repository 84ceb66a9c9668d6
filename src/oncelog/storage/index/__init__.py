"""The index: derived from the journal, rebuilt from it at will, never trusted over it."""
