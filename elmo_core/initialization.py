"""Random weights of a biLM that has learned nothing yet."""

from __future__ import annotations

import math

import torch

from elmo_core.bilm import BiLM
from elmo_core.config import BiLMConfig


def initialize_bilm(config: BiLMConfig, seed: int) -> BiLM:
    """Make a biLM whose activations neither vanish nor reach the clips at any size.

    Args:
        config: Sizes.
        seed: The same seed gives the same weights with the same torch release.

    Returns:
        The biLM, on the CPU, in float32.
    """
    generator = torch.Generator().manual_seed(seed)
    bilm = BiLM(config)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            if name.endswith("carry.bias"):
                parameter.fill_(-2.0)  # highways begin by carrying their input, as in bilm-tf
            elif parameter.dim() == 1:
                parameter.zero_()
            else:
                bound = 1.7 / math.sqrt(parameter[0].numel()) if name != "char_cnn.embedding" else 1.0
                parameter.uniform_(-bound, bound, generator=generator)
    return bilm
