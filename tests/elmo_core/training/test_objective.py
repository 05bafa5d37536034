"""The softmax, and its estimate from samples."""

from __future__ import annotations

import torch

from elmo_core.training.objective import Candidates, Softmax, draw_candidates, log_expected_count


def _softmax(n_tokens: int = 50, width: int = 8) -> Softmax:
    softmax = Softmax(n_tokens, width)
    softmax.initialize(0)
    return softmax


def test_the_whole_softmax_is_the_formula() -> None:
    softmax = _softmax()
    hidden, targets = torch.randn(6, 8), torch.arange(6)
    logits = hidden.double() @ softmax.weight.detach().double().T
    expected = torch.logsumexp(logits, 1) - logits[torch.arange(6), targets]
    torch.testing.assert_close(softmax.losses(hidden, targets), expected.float())


def test_probabilities_of_the_draws_are_log_uniform() -> None:
    torch.manual_seed(0)
    n_tokens, n_negatives, n_tries = 20, 5, 4000
    seen = torch.zeros(n_tokens)
    for _ in range(n_tries):
        seen[draw_candidates(n_tokens, n_negatives, torch.device("cpu")).ids] += 1
    expected = torch.exp(log_expected_count(torch.arange(n_tokens), n_tokens, n_negatives))
    torch.testing.assert_close(seen / n_tries, expected, rtol=0, atol=0.03)


def test_probabilities_of_one_draw_add_up_to_one() -> None:
    total = torch.exp(log_expected_count(torch.arange(1000), 1000, 1)).sum()
    torch.testing.assert_close(total, torch.tensor(1.0))


def test_all_candidates_at_equal_odds_are_the_whole_softmax() -> None:
    softmax = _softmax()
    hidden, targets = torch.randn(6, 8), torch.arange(6)
    everyone = Candidates(torch.arange(50), torch.zeros(50))
    certain = 10_000_000  # draws after which each token is among the candidates
    actual = softmax.sampled_losses(hidden, targets, everyone, certain)
    torch.testing.assert_close(actual, softmax.losses(hidden, targets))


def test_the_sampled_normalizer_is_unbiased() -> None:
    torch.manual_seed(1)
    softmax = _softmax()
    hidden, target = torch.randn(1, 8), torch.tensor([49])
    logits = softmax.weight.detach() @ hidden[0]
    others = torch.exp(logits[:49]).sum()
    expected_true = log_expected_count(target, 50, 20)
    sums = []
    for _ in range(3000):
        candidates = draw_candidates(50, 20, torch.device("cpu"))
        loss = softmax.sampled_losses(hidden, target, candidates, 20).detach()
        true = logits[49] - expected_true
        sums.append(torch.exp(loss + true) - torch.exp(true))
    torch.testing.assert_close(torch.stack(sums).mean(), others, rtol=0.03, atol=0)


def test_gradients_reach_hidden_and_weights() -> None:
    torch.manual_seed(0)
    softmax = _softmax()
    hidden = torch.randn(6, 8, requires_grad=True)
    softmax.sampled_losses(hidden, torch.arange(6), draw_candidates(50, 20, torch.device("cpu")), 20).sum().backward()
    assert hidden.grad is not None
    assert softmax.weight.grad is not None
    assert bool(torch.isfinite(hidden.grad).all())
    assert bool((softmax.weight.grad[:6].abs().sum(1) > 0).all())
