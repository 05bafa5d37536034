"""The words of a corpus, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elmo_core import CorpusError
from elmo_core.vocabulary import TokenCounter
from pipelines.progress import ProgressView
from pipelines.textunits import TextOptions, plan_units


def count_vocabulary(inputs: Sequence[str], text: TextOptions) -> TokenCounter:
    """Count the tokens of a corpus; those of an input that is named twice count twice, as in training.

    Raises:
        ConfigError: An option or an input is wrong.
        CorpusError: A source can't be read, or there is no token in any.
    """
    source = text.source()
    counter = TokenCounter()
    planned = plan_units(inputs)
    weights = Counter(unit.text_range for unit in planned)
    units = [unit for unit in planned if unit.repeat == 0]
    n_bytes, n_done = sum(unit.n_bytes for unit in units), 0
    with ProgressView("counting") as view:
        for unit in units:
            for sentences in source.sentences(unit.text_range):
                for sentence in sentences:
                    counter.add(sentence, weights[unit.text_range])
            n_done += unit.n_bytes
            view.show(n_done / n_bytes, f"{counter.n_tokens:,} tokens, {len(counter.counts):,} distinct")
    if not counter.n_tokens:
        raise CorpusError("holds no token", ", ".join(inputs))
    return counter
