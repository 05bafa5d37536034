"""A trigram model to hold a biLM's perplexity against: the same vocabulary, the same sentences, the same predictions.

    python benchmarks/trigram.py TEXT... --heldout TEXT --vocab VOCABULARY [--format text] [--direction both] [--json]

Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999), trained on the texts, a text that is named twice twice.
Measured as `elmo perplexity` does: each sentence alone, every token and then the boundary is predicted; backward is a
second model, of the reversed sentences. Words that the vocabulary lacks are `<UNK>`, to predict and as context.
"""

from __future__ import annotations

import argparse
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from elmo_core import ConfigError, CorpusError
from elmo_core.charids import BOS, EOS
from elmo_core.vocabulary import Vocabulary, read_vocabulary
from pipelines.cli.group import print_facts
from pipelines.textunits import TextOptions, TextSource, TextUnit, check_apart, plan_units

Ids = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ID_BITS: Final = 21
"""Bits of a word's id: three ids make a key of 63."""
MASKS: Final = tuple((1 << ID_BITS * n_words) - 1 for n_words in (1, 2, 3))
"""What is left of a key's last word, last two words, all three."""
FALLBACK: Final = (0.0, 0.5, 1.0, 1.5)
"""Discounts where the counts of counts give none, as in a tiny text (KenLM's)."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The n-grams of one length, sorted.

    Args:
        keys: Of the n-grams. Shape: (N,).
        shares: Discounted count of each by its context's count. Shape: (N,).
        contexts: Keys of the n-grams without their last word, each once. Shape: (C,).
        rests: What the discounts took from each context, for the next shorter n-grams. Shape: (C,).
        discounts: For n-grams seen not at all, once, twice, more often. Shape: (4,).
    """

    keys: Ints
    shares: Floats
    contexts: Ints
    rests: Floats
    discounts: Floats

    def extend(self, keys: Ints, shorter: Floats) -> Floats:
        """Probabilities of n-grams, from those of the n-grams without the first word. Shape: (M,), (M,) -> (M,)."""
        shares = _look_up(self.keys, self.shares, keys, 0.0)
        return shares + _look_up(self.contexts, self.rests, keys >> ID_BITS, 1.0) * shorter


@dataclass(frozen=True, slots=True, eq=False)
class TrigramModel:
    """Unigrams, bigrams and trigrams, interpolated, down to a uniform guess.

    Args:
        orders: By length.
        n_words: Of the vocabulary.
    """

    orders: tuple[Order, Order, Order]
    n_words: int

    def probabilities(self, keys: Ints) -> Floats:
        """Of each trigram's last word after the two before it. Shape: (M,) -> (M,)."""
        found = np.full(len(keys), 1 / self.n_words)
        for order, mask in zip(self.orders, MASKS, strict=True):
            found = order.extend(keys & mask, found)
        return found


def encode_sentences(sentences: Iterable[Sequence[str]], vocabulary: Vocabulary) -> Ids:
    """Ids of sentences with their boundaries, one id past the vocabulary's around each; reversed, it is the backward text.

    Raises:
        ConfigError: The vocabulary is too large for our keys.
    """
    pad = len(vocabulary)
    if pad >= 1 << ID_BITS:
        raise ConfigError(f"a vocabulary of {pad:,} words; {(1 << ID_BITS) - 1:,} at most")
    bos, eos = vocabulary.ids([BOS, EOS])
    ids = array("i", [pad])
    for sentence in sentences:
        if sentence:
            ids.extend((bos, *vocabulary.ids(sentence), eos, pad))
    return np.array(ids, dtype=np.int32)


def pack_trigrams(ids: Ids, pad: int) -> Ints:
    """A key for each prediction: the word, the one before, and the one before that, which is `pad` after a boundary."""
    words = ids.astype(np.int64)
    keys = (words[:-2] << 2 * ID_BITS) | (words[1:-1] << ID_BITS) | words[2:]
    told: Ints = keys[(words[1:-1] != pad) & (words[2:] != pad)]
    return told


def train_trigrams(ids: Ids, n_words: int) -> TrigramModel:
    """Count and smooth.

    Bigrams and unigrams count the distinct words before them, but where a bigram begins a sentence it has none and keeps
    its own count, as in KenLM.

    Args:
        ids: From `encode_sentences`, or that reversed.
        n_words: Of the vocabulary.
    """
    trigrams, counts = np.unique(pack_trigrams(ids, n_words), return_counts=True)
    begins = trigrams >> 2 * ID_BITS == n_words
    bigrams, place = np.unique(trigrams & MASKS[1], return_inverse=True)
    n_before = np.bincount(place, np.where(begins, counts, 1), len(bigrams)).astype(np.int64)
    unigrams = np.unique(bigrams & MASKS[0], return_counts=True)
    inside = (trigrams[~begins], counts[~begins])
    return TrigramModel((make_order(*unigrams), make_order(bigrams, n_before), make_order(*inside)), n_words)


def make_order(keys: Ints, counts: Ints) -> Order:
    """Discount counts of n-grams. Shape: (N,), (N,)."""
    discounts = estimate_discounts(counts)
    taken = discounts[np.minimum(counts, 3)]
    contexts, starts, n_grams = np.unique(keys >> ID_BITS, return_index=True, return_counts=True)
    totals = np.add.reduceat(counts, starts)
    shares = (counts - taken) / np.repeat(totals, n_grams)
    return Order(keys, shares, contexts, np.add.reduceat(taken, starts) / totals, discounts)


def estimate_discounts(counts: Ints) -> Floats:
    """Chen and Goodman's three discounts from how many n-grams were seen once to four times. Shape: (N,) -> (4,)."""
    once, twice, thrice, four_times = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    if not (once and twice and thrice):
        return np.array(FALLBACK)
    y = once / (once + 2 * twice)
    found = (0.0, 1 - 2 * y * twice / once, 2 - 3 * y * thrice / twice, 3 - 4 * y * four_times / thrice)
    return np.array(found if min(found[1:]) > 0 else FALLBACK)


def mean_loss(model: TrigramModel, ids: Ids) -> float:
    """Negative log-likelihood of a prediction, in nats, the mean of all that a text has."""
    return float(-np.log(model.probabilities(pack_trigrams(ids, model.n_words))).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+", help="files or globs to train on")
    parser.add_argument("--heldout", action="append", required=True, help="file or glob to measure with; repeatable")
    parser.add_argument("--vocab", type=Path, required=True, help="from elmo vocab")
    parser.add_argument("--format", choices=("text", "lines"), default="text")
    parser.add_argument("--tokenizer", help="by default spacy:en for text, whitespace for lines")
    parser.add_argument("--direction", choices=("both", "forward", "backward"), default="both")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    options = parser.parse_args()
    units, heldout_units = plan_units(options.text), [unit for unit in plan_units(options.heldout) if unit.repeat == 0]
    check_apart(units, heldout_units)
    vocabulary, source = read_vocabulary(options.vocab), TextOptions(format=options.format, tokenizer=options.tokenizer).source()
    ids, heldout = (_read(part, source, vocabulary) for part in (units, heldout_units))
    ways = ("forward", "backward") if options.direction == "both" else (options.direction,)
    print_facts({**_measure_ways(ids, heldout, len(vocabulary), ways), **_text_facts(ids, heldout, vocabulary)}, options.json)


def _read(units: Sequence[TextUnit], source: TextSource, vocabulary: Vocabulary) -> Ids:
    ids = encode_sentences((s for unit in units for found in source.sentences(unit.text_range) for s in found), vocabulary)
    if len(ids) == 1:
        raise CorpusError("holds no token", units[0].text_range.source)
    return ids


def _measure_ways(ids: Ids, heldout: Ids, n_words: int, ways: Sequence[str]) -> dict[str, object]:
    losses: dict[str, float] = {}
    smoothing: dict[str, object] = {}
    for way in ways:
        step = 1 if way == "forward" else -1
        model = train_trigrams(ids[::step], n_words)
        losses[way] = mean_loss(model, heldout[::step])
        smoothing[f"{way}_ngrams"] = [len(order.keys) for order in model.orders]
        smoothing[f"{way}_discounts"] = [order.discounts[1:].round(3).tolist() for order in model.orders]
    perplexities = {way: round(math.exp(loss), 3) for way, loss in losses.items()}
    return {"perplexity": round(math.exp(sum(losses.values()) / len(losses)), 3), **perplexities, **smoothing}


def _text_facts(ids: Ids, heldout: Ids, vocabulary: Vocabulary) -> dict[str, object]:
    n_sentences, n_trained_sentences = (int((text == len(vocabulary)).sum()) - 1 for text in (heldout, ids))
    n_tokens = len(heldout) - 1 - 3 * n_sentences  # without the boundaries and what stands around each sentence
    n_unknown = int((heldout == vocabulary.unknown_id).sum())
    return {
        "trained_tokens": len(ids) - 1 - 3 * n_trained_sentences,
        "sentences": n_sentences,
        "tokens": n_tokens,
        "unknown_tokens": n_unknown,
        "unknown_share": round(n_unknown / n_tokens, 5),
    }


def _look_up(keys: Ints, values: Floats, wanted: Ints, otherwise: float) -> Floats:
    """Values of wanted keys among sorted ones. Shape: (N,), (N,), (M,) -> (M,)."""
    if not len(keys):
        return np.full(len(wanted), otherwise)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], otherwise)


if __name__ == "__main__":
    main()
