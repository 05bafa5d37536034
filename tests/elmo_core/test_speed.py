"""What a measurement of speed counts; how fast it is, is not tested."""

from __future__ import annotations

import pytest
import torch
from builders import make_bundle, make_config

from elmo_core import Embedder, speed
from elmo_core.speed import measure_ceiling, measure_speed


@pytest.fixture(autouse=True)
def _measure_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_SECONDS", 0.001)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_report_counts_the_text(precision: str) -> None:
    report = measure_speed(Embedder(make_bundle(), device="cpu", precision=precision), [["a", "b", "a"], ["c"]] * 3)
    assert (report.n_sentences, report.n_tokens, report.device, report.precision) == (6, 12, "cpu", precision)
    assert (report.mean_lanes, report.lane_fill) == (4.5, pytest.approx(18 / 20))  # 4 + 4 + 4 rows and 2 + 2 + 2 in 4 steps
    assert report.hit_rate == pytest.approx(2 / 5)  # <S> and </S>, known from the warm-up
    assert 0 < report.computed_gflops < report.gflops
    assert report.ratio == pytest.approx(report.gflops / report.ceiling_gflops)
    assert report.peak_bytes > 10 * 2**20


@pytest.mark.parametrize("cell_size", [24, 8])
def test_a_ceiling_is_measured_with_and_without_projection(cell_size: int) -> None:
    config = make_config(cell_size=cell_size).lstm
    assert measure_ceiling(config, torch.float32, torch.device("cpu"), 3) > 0
