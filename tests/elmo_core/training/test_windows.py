"""Text in lanes: every token once, both directions, from anywhere on."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from builders import ListPassages
from hypothesis import given
from hypothesis import strategies as st

from elmo_core import charids
from elmo_core.training.windows import IGNORED, Passage, Window, Windows
from elmo_core.vocabulary import Vocabulary

WORDS = tuple("abcdefgh")
VOCABULARY = Vocabulary(("</S>", "<S>", "<UNK>", *WORDS))
passages_of_text = st.lists(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=1, max_size=4), min_size=1, max_size=8
)


def _windows(passages: list[Passage], *, n_lanes: int = 2, n_steps: int = 3, resets: float = 0.0) -> Windows:
    return Windows(
        ListPassages(passages),
        VOCABULARY,
        n_lanes=n_lanes,
        n_steps=n_steps,
        max_characters_per_token=10,
        reset_probability=resets,
        seed=0,
    )


def _all(windows: Windows) -> list[Window]:
    return list(iter(windows.next, None))


def _read_by_lane(windows: list[Window], way: int) -> list[list[tuple[str, str]]]:
    """What each lane of a direction reads and predicts, as words."""
    names = {tuple(charids.encode_tokens([token], 10)[0]): token for token in VOCABULARY.tokens}
    lanes: list[list[tuple[str, str]]] = [[] for _ in range(windows[0].inputs.shape[2])]
    for window in windows:
        for number, lane in enumerate(lanes):
            for row, target in zip(window.inputs[way, :, number], window.targets[way, :, number], strict=True):
                if target != IGNORED:
                    lane.append((names[tuple(window.characters[row].tolist())], VOCABULARY.tokens[target]))
    return lanes


@given(passages_of_text, st.integers(1, 4), st.integers(1, 5))
def test_both_directions_read_every_sentence_once(passages: list[Passage], n_lanes: int, n_steps: int) -> None:
    windows = _all(_windows(passages, n_lanes=n_lanes, n_steps=n_steps))
    sentences = [sentence for passage in passages for sentence in passage]
    for way, (first, last) in enumerate((("<S>", "</S>"), ("</S>", "<S>"))):
        read = [tuple(s if way == 0 else s[::-1]) for s in sentences]
        expected = sorted([((first, *s), (*s, last)) for s in read])
        actual: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        for lane in _read_by_lane(windows, way):
            bounds = [*(i for i, (token, _) in enumerate(lane) if token == first), len(lane)]
            for start, stop in pairwise(bounds):
                inputs, targets = zip(*lane[start:stop], strict=True)
                actual.append((inputs, targets))
        assert sorted(actual) == expected


@given(passages_of_text, st.integers(0, 6))
def test_a_restored_state_gives_the_same_rest(passages: list[Passage], n_before: int) -> None:
    windows = _windows(passages, resets=0.5)
    for _ in range(n_before):
        windows.next()
    state = windows.state_dict()
    rest = _all(windows)
    again = _windows(passages, resets=0.5)
    again.load_state_dict(state)
    for left, right in zip(rest, _all(again), strict=True):
        for name in ("characters", "inputs", "targets", "keep"):
            assert torch.equal(getattr(left, name), getattr(right, name))


def test_state_is_reset_at_sentence_starts_only() -> None:
    windows = _all(_windows([[["a", "b", "c"], ["d"]], [["e", "f"]]], resets=1.0))
    starts = [int(window.keep.numel() - window.keep.sum()) for window in windows if window.keep is not None]
    assert sum(starts) == 3


def test_words_out_of_the_vocabulary_are_read_but_predicted_as_unknown() -> None:
    window = _windows([[["zebra"]]]).next()
    assert window is not None
    assert window.targets[0, :2, 0].tolist() == [2, 0]
    assert charids.encode_tokens(["zebra"], 10).tolist()[0] in window.characters.tolist()


@pytest.mark.parametrize("n_tokens", [1, 50])
def test_a_sentence_may_be_longer_than_a_window(n_tokens: int) -> None:
    windows = _all(_windows([[["a"] * n_tokens]], n_lanes=1, n_steps=4))
    assert sum(window.n_targets for window in windows) == n_tokens + 1
