"""The encoder on a real CUDA device; without one these tests skip, and `test_recurrence.py` runs the graph's steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import make_bundle

from elmo_core import Embedder

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")]
SENTENCES = [["The", "cat", "sat", "."], [], ["好", "的"], ["a"] * 300, *([f"w{i}", "x"] for i in range(700))]


@pytest.mark.parametrize("changes", [{}, {"n_layers": 3}, {"cell_size": 8}, {"use_skip_connections": False}])
def test_cuda_equals_the_cpu(changes: dict[str, object]) -> None:
    bundle = make_bundle(warm=True, **changes)
    embedder = Embedder(bundle, device="cuda", initial_state="warm")
    expected = Embedder(bundle, device="cpu", initial_state="warm").embed(SENTENCES)
    for _ in range(2):  # captured, then replayed
        for actual, want in zip(embedder.embed(SENTENCES), expected, strict=True):
            np.testing.assert_allclose(actual, want, rtol=0, atol=1e-5)


def test_bfloat16_is_near_on_cuda() -> None:
    bundle = make_bundle()
    exact, near = (
        np.concatenate(Embedder(bundle, device=d, precision=p).embed(SENTENCES), axis=1)
        for d, p in (("cpu", "float32"), ("cuda", "bfloat16"))
    )
    assert 0 < np.abs(exact - near).max() < 0.05


def test_batches_copied_beside_the_work_are_whole() -> None:
    embedder = Embedder(make_bundle(), device="cuda")
    expected = [embedder.embed([tokens])[0] for tokens in SENTENCES[:20]]
    for vectors, want in zip(embedder.embed_batches([tokens] for tokens in SENTENCES[:20]), expected, strict=True):
        np.testing.assert_allclose(vectors.layers, want, rtol=0, atol=1e-6)
