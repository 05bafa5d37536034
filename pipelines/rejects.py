"""Records that can't be read: counted and kept with their reason, never dropped in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHOWN_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Reject:
    """One record that gives no row.

    Args:
        source: URI of the file.
        offset: The record's first byte.
        reason: A few words, the same for all of a kind.
        detail: What exactly was found, and where.
        content: The record's first bytes, with whatever is no plain ASCII escaped.
    """

    source: str
    offset: int
    reason: str
    detail: str
    content: str


def show_bytes(raw: bytes) -> str:
    """Bytes as safe ASCII: printable characters as they are, the rest escaped by their value."""
    shown = "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in raw[:SHOWN_BYTES])
    return shown if len(raw) <= SHOWN_BYTES else shown + "..."
