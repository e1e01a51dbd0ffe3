"""FIX messages, with their lengths and checksums."""

from __future__ import annotations

FILL_44 = {35: "8", 34: "7", 49: "BROKER", 52: "20261113-10:05:00.250", 56: "US", 37: "o1",
           11: "c1", 17: "e1", 150: "F", 39: "2", 55: "ABC", 54: "1", 32: "100", 31: "9.25",
           60: "20261113-10:04:59.123456789", 15: "USD"}  # fmt: skip
FILL_42 = {**FILL_44, 150: "1", 39: "1", 20: "0"}


def message(fields: dict[int, str], version: str = "FIX.4.4", delimiter: str = "\x01") -> bytes:
    """A message with its length and checksum, which are of the one with SOH."""
    body = "".join(f"{tag}={value}\x01" for tag, value in fields.items())
    text = f"8={version}\x019={len(body)}\x01{body}"
    text += f"10={sum(text.encode()) % 256:03}\x01"
    return text.replace("\x01", delimiter).encode()
