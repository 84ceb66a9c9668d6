"""The faces: bytes of a protocol to core commands and back. Pure: no sockets, no files, no clock."""
