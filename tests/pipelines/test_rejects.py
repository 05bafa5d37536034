"""How rejected bytes are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.rejects import SHOWN_BYTES, show_bytes


@given(st.binary(max_size=50))
def test_shown_bytes_are_printable_and_tell_the_bytes(raw: bytes) -> None:
    shown = show_bytes(raw)
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape").encode("latin-1") == raw


def test_long_records_are_cut_and_say_so() -> None:
    assert show_bytes(b"a" * 1000) == "a" * SHOWN_BYTES + "..."
