"""The softmax over the vocabulary, whole or sampled, shared by both directions (Peters et al. 2018, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Distinct tokens drawn against the target.

    Args:
        ids: Sorted. Shape: (S,).
        log_expected: Logarithm of the probability that a token with this id is among them. Shape: (S,).
    """

    ids: Tensor
    log_expected: Tensor


def log_expected_count(ids: Tensor, n_tokens: int, n_negatives: int) -> Tensor:
    """Logarithm of the probability that log-uniform draws hold a token at least once.

    A draw gives id k with probability log((k + 2) / (k + 1)) / log(V + 1) (TensorFlow `log_uniform_candidate_sampler`).

    Args:
        ids: Any shape.
        n_tokens: V, sorted by falling frequency.
        n_negatives: Draws with replacement.
    """
    probability = torch.log1p(1.0 / (ids.double() + 1.0)) / math.log(n_tokens + 1)
    return torch.log(-torch.expm1(n_negatives * torch.log1p(-probability))).float()


def draw_candidates(n_tokens: int, n_negatives: int, device: torch.device) -> Candidates:
    """Draw ids log-uniformly with replacement and keep the distinct ones.

    Args:
        n_tokens: V.
        n_negatives: Draws; the number of distinct ids is less.
        device: Where torch's own generator draws.
    """
    uniform = torch.rand(n_negatives, device=device, dtype=torch.float64)
    drawn = torch.exp(uniform * math.log(n_tokens + 1)).long() - 1
    ids = torch.unique(drawn.clamp_(0, n_tokens - 1))
    return Candidates(ids, log_expected_count(ids, n_tokens, n_negatives))


class Softmax(nn.Module):
    """Output weights of the language model.

    Args:
        n_tokens: V.
        width: D, the LSTMs' projection.
    """

    def __init__(self, n_tokens: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_tokens, width))
        self.bias = nn.Parameter(torch.zeros(n_tokens))

    def initialize(self, seed: int) -> None:
        """Draw the weights as bilm-tf does: normal with deviation 1 / sqrt(D)."""
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5, generator=generator)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of each target under the whole softmax, in nats.

        Args:
            hidden: Shape: (N, D).
            targets: Shape: (N,).

        Returns:
            Shape: (N,).
        """
        logits = F.linear(hidden, self.weight, self.bias)
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def sampled_losses(self, hidden: Tensor, targets: Tensor, candidates: Candidates, n_negatives: int) -> Tensor:
        """Loss of each target against the candidates, each logit less the log of its expected count (Jean et al. 2015).

        Args:
            hidden: Shape: (N, D).
            targets: Shape: (N,).
            candidates: From `draw_candidates`; where the target is among them it is left out.
            n_negatives: With which they were drawn.

        Returns:
            Shape: (N,).
        """
        expected = log_expected_count(targets, len(self.bias), n_negatives)
        true = (hidden * F.embedding(targets, self.weight)).sum(dim=1).float() + self.bias[targets] - expected
        logits = F.linear(hidden, self.weight[candidates.ids], self.bias[candidates.ids] - candidates.log_expected).float()
        place = torch.searchsorted(candidates.ids, targets).clamp_(max=len(candidates.ids) - 1)
        hit = candidates.ids[place] == targets
        rows = hit.nonzero()[:, 0]
        logits = logits.index_put((rows, place[rows]), logits.new_tensor(-math.inf))
        return torch.logaddexp(true, torch.logsumexp(logits, dim=1)) - true
