"""The header of a webp file (RFC 9649)."""


def webp_size(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels. Raises ValueError if it is not a whole webp file."""
    size = int.from_bytes(content[4:8], "little")
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or len(content) != size + size % 2 + 8:
        raise ValueError("is not a whole webp file")
    kind, width, height = content[12:16], content[26:28], content[28:30]
    if kind == b"VP8 ":  # 2.5: after a frame tag and a start code, 14 bits each
        return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF
    if kind == b"VP8L":  # 2.6: after a signature byte, 14 bits each, one less
        both = int.from_bytes(content[21:25], "little")
        return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":  # 2.7: after four bytes of flags, 24 bits each, one less
        both = int.from_bytes(content[24:30], "little")
        return (both & 0xFFFFFF) + 1, (both >> 24) + 1
    raise ValueError("is not a webp picture")
