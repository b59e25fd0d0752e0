"""The header and trailer of a binary COPY."""

FILE_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, length of the header extension
FILE_TRAILER = b"\xff\xff"
