"""The trigram model against its formulas."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import trigram
from trigram import TrigramModel, encode_sentences, estimate_discounts, mean_loss, pack_trigrams, train_trigrams

from elmo_core.vocabulary import SPECIAL_TOKENS, Vocabulary

WORDS = [f"w{number}" for number in range(150)]
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *(word for word in WORDS if word != "w4"), "never"))
PAD = len(VOCABULARY)


def _draw_sentences(n_sentences: int, seed: int) -> list[list[str]]:
    """Words as in text, few of them often; `w4` isn't in the vocabulary."""
    draw = random.Random(seed)
    weights = [(number + 1) ** -1.4 for number in range(len(WORDS))]
    return [draw.choices(WORDS, weights, k=draw.randint(1, 6)) for _ in range(n_sentences)]


TRAINED, HELDOUT = _draw_sentences(150, 1), _draw_sentences(40, 2)
MODEL = train_trigrams(encode_sentences(TRAINED, VOCABULARY), PAD)


def _pack(before: tuple[int, int], word: int) -> int:
    return (before[0] << 42) | (before[1] << 21) | word


def _reference(sentences: list[list[str]], *, is_backward: bool = False) -> Callable[[int, int, int], float]:
    """The formulas with dictionaries: P(w | u, v), None for u where a sentence starts."""
    first, last = VOCABULARY.ids(["</S>", "<S>"] if is_backward else ["<S>", "</S>"])
    tables: list[Counter[tuple[int, ...]]] = [Counter(), Counter(), Counter()]
    for sentence in sentences:
        ids = VOCABULARY.ids(reversed(sentence) if is_backward else sentence)
        told = [first, *ids, last]
        tables[2].update(zip(told, told[1:], told[2:], strict=False))
        tables[1][first, told[1]] += 1
    tables[1].update(gram[1:] for gram in tables[2])
    tables[0].update(gram[1:] for gram in tables[1])
    discounts = []
    for table in tables:
        n = Counter(table.values())
        y = n[1] / (n[1] + 2 * n[2])
        discounts.append([0.0, *(k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))])

    def probability(gram: tuple[int, ...]) -> float:
        if not gram:
            return 1 / len(VOCABULARY)
        table, d = tables[len(gram) - 1], discounts[len(gram) - 1]
        followers = [count for other, count in table.items() if other[:-1] == gram[:-1]]
        shorter = probability(gram[1:])
        if not followers:
            return shorter
        rest = sum(d[min(count, 3)] for count in followers)
        return (table[gram] - d[min(table[gram], 3)] + rest * shorter) / sum(followers)

    return lambda u, v, w: probability((v, w) if u == PAD else (u, v, w))


@pytest.mark.parametrize("before", ["w0 w1", "w9 w40", "w1 never", "never w1", "never never", "w4 w4", "</S> w0"])
def test_probabilities_of_all_words_sum_to_one(before: str) -> None:
    u, v = VOCABULARY.ids(before.split())
    keys = np.array([_pack((u, v), word) for word in range(PAD)])
    assert MODEL.probabilities(keys).sum() == pytest.approx(1, abs=1e-12)
    assert MODEL.probabilities(keys).min() > 0


def test_probabilities_of_first_words_sum_to_one() -> None:
    (start,) = VOCABULARY.ids(["<S>"])
    assert MODEL.probabilities(np.array([_pack((PAD, start), word) for word in range(PAD)])).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("is_backward", [False, True])
def test_probabilities_are_those_of_the_formulas(is_backward: bool) -> None:
    step, expected = -1 if is_backward else 1, _reference(TRAINED, is_backward=is_backward)
    model = train_trigrams(encode_sentences(TRAINED, VOCABULARY)[::step], PAD)
    keys = pack_trigrams(encode_sentences(HELDOUT, VOCABULARY)[::step], PAD)
    assert not any(order.discounts.tolist() == list(trigram.FALLBACK) for order in model.orders)
    words = [(int(key) >> 42, (int(key) >> 21) & 0x1FFFFF, int(key) & 0x1FFFFF) for key in keys]
    assert model.probabilities(keys).tolist() == pytest.approx([expected(*gram) for gram in words], rel=1e-12)


def test_every_token_and_the_boundary_are_predicted() -> None:
    ids = encode_sentences([["w0", "w4"], [], ["w1"]], VOCABULARY)
    end, start, unknown, a, b = VOCABULARY.ids(["</S>", "<S>", "<UNK>", "w0", "w1"])
    forward = [((PAD, start), a), ((start, a), unknown), ((a, unknown), end), ((PAD, start), b), ((start, b), end)]
    backward = [((PAD, end), b), ((end, b), start), ((PAD, end), unknown), ((end, unknown), a), ((unknown, a), start)]
    assert pack_trigrams(ids, PAD).tolist() == [_pack(*gram) for gram in forward]
    assert pack_trigrams(ids[::-1], PAD).tolist() == [_pack(*gram) for gram in backward]


def test_a_model_of_nothing_guesses_uniformly() -> None:
    model: TrigramModel = train_trigrams(encode_sentences([], VOCABULARY), PAD)
    assert math.exp(mean_loss(model, encode_sentences(HELDOUT, VOCABULARY))) == pytest.approx(PAD)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1] * 8 + [2] * 4 + [3] * 2 + [4], [0, 0.5, 1.25, 2.0]),
        ([1, 1, 2, 2], trigram.FALLBACK),
        ([1] + [2] * 4 + [3] * 2 + [4] * 40, trigram.FALLBACK),
    ],
    ids=["by hand", "none seen three times", "negative"],
)
def test_discounts_come_from_counts_of_counts(counts: list[int], expected: list[float]) -> None:
    assert estimate_discounts(np.array(counts)).tolist() == pytest.approx(expected)


def test_the_command_prints_both_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    VOCABULARY.save(tmp_path / "vocabulary.txt")
    for name, sentences in (("trained", TRAINED), ("heldout", HELDOUT)):
        (tmp_path / name).write_text("".join(f"{' '.join(sentence)}\n" for sentence in sentences))
    options = ["--heldout", f"{tmp_path}/held*", "--vocab", f"{tmp_path}/vocabulary.txt", "--format", "lines", "--json"]
    monkeypatch.setattr(sys, "argv", ["trigram.py", f"{tmp_path}/trained", *options])
    trigram.main()
    facts = json.loads(capsys.readouterr().out)
    assert (facts["sentences"], facts["tokens"]) == (len(HELDOUT), sum(map(len, HELDOUT)))
    assert facts["unknown_tokens"] == sum(sentence.count("w4") for sentence in HELDOUT)
    assert facts["forward"] == round(math.exp(mean_loss(MODEL, encode_sentences(HELDOUT, VOCABULARY))), 3)
    assert facts["perplexity"] == pytest.approx(math.sqrt(facts["forward"] * facts["backward"]), abs=1e-3)
