"""Two plain encoders to compare against, with the same weights and outputs as ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from elmo_core import BiLM, Bundle, charids

BATCH_SENTENCES = 128


class Baseline:
    """Sort by length, cut into batches, run the char-CNN on every token.

    Args:
        bundle: The model.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bilm: BiLM = bundle.build_bilm()
        self.n_positions = bundle.config.char_cnn.max_characters_per_token

    @torch.inference_mode()
    def embed(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Shape of each: (L + 1, T, 2D)."""
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        found: list[np.ndarray] = [np.empty(0)] * len(sentences)
        for start in range(0, len(order), BATCH_SENTENCES):
            batch = order[start : start + BATCH_SENTENCES]
            for i, vectors in zip(batch, self.embed_batch([sentences[i] for i in batch]), strict=True):
                found[i] = vectors
        return found

    def embed_batch(self, sentences: list[Sequence[str]]) -> list[np.ndarray]:
        """A batch that fits, longest first."""
        ids = [
            torch.from_numpy(charids.encode_tokens([charids.BOS, *tokens, charids.EOS], self.n_positions)) for tokens in sentences
        ]
        lengths = [len(tokens) + 2 for tokens in sentences]
        layers = self.embed_ids(ids, lengths)
        return [layers[:, i, 1 : length - 1].contiguous().numpy() for i, length in enumerate(lengths)]

    def embed_ids(self, ids: list[Tensor], lengths: list[int]) -> Tensor:
        """Character ids of sentences to layers. Shape: (T, C) each -> (L + 1, B, T, 2D)."""
        raise NotImplementedError

    def encode(self, ids: Tensor) -> Tensor:
        """All positions of all tokens through the char-CNN. Shape: (N, C) -> (N, D)."""
        cnn = self.bilm.char_cnn
        table = torch.cat([torch.zeros_like(cnn.embedding[:1]), cnn.embedding])
        characters = F.embedding(ids, table).transpose(1, 2)
        x = cnn.activation(torch.cat([conv(characters).amax(dim=2) for conv in cnn.filters], dim=1))
        for highway in cnn.highways:
            x = highway(x)
        return x if cnn.projection is None else cnn.projection(x)


class PaddedEncoder(Baseline):
    """Padded batches and a product of its own for each step's input and state, as AllenNLP's encoder does it."""

    def embed_ids(self, ids: list[Tensor], lengths: list[int]) -> Tensor:
        """See `Baseline`."""
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=charids.PADDING)
        tokens = self.encode(padded.flatten(0, 1)).view(*padded.shape[:2], -1)
        layers = [torch.cat([tokens, tokens], dim=2)]
        inputs = [tokens, tokens]
        stacks = (self.bilm.forward_lstm, self.bilm.backward_lstm)
        for number in range(len(stacks[0].layers)):
            outputs = []
            for direction, stack in enumerate(stacks):
                y = self._run(stack.layers[number], inputs[direction], lengths, backward=direction == 1)
                outputs.append(y + inputs[direction] if number and stack.config.use_skip_connections else y)
            inputs = outputs
            layers.append(torch.cat(outputs, dim=2))
        return torch.stack(layers)

    def _run(self, layer: nn.Module, x: Tensor, lengths: list[int], *, backward: bool) -> Tensor:
        config = layer.config
        outputs = x.new_zeros(len(lengths), x.shape[1], config.projection_size)
        hidden, cell = x.new_zeros(len(lengths), config.projection_size), x.new_zeros(len(lengths), config.cell_size)
        forget = torch.zeros_like(layer.bias)
        forget[2 * config.cell_size : 3 * config.cell_size] = 1.0
        bias = layer.bias + forget
        for step in reversed(range(x.shape[1])) if backward else range(x.shape[1]):
            n = sum(length > step for length in lengths)  # longest first
            gates = F.linear(x[:n, step], layer.input_weight) + F.linear(hidden[:n], layer.recurrent_weight, bias)
            i, j, f, o = gates.chunk(4, dim=1)
            c = torch.sigmoid(i) * torch.tanh(j) + torch.sigmoid(f) * cell[:n]
            c = c if config.cell_clip is None else c.clamp(-config.cell_clip, config.cell_clip)
            h = torch.sigmoid(o) * torch.tanh(c)
            if layer.projection is not None:
                h = F.linear(h, layer.projection)
                h = h if config.proj_clip is None else h.clamp(-config.proj_clip, config.proj_clip)
            outputs[:n, step] = h
            hidden, cell = hidden.clone(), cell.clone()
            hidden[:n], cell[:n] = h, c
        return outputs


class TorchLstmEncoder(Baseline):
    """`torch.nn.LSTM` with projections on packed sequences; it has no clips, so it equals ours where none is reached."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        stacks = (self.bilm.forward_lstm, self.bilm.backward_lstm)
        self.lstms = [[torch_lstm(layer) for layer in stack.layers] for stack in stacks]

    def embed_ids(self, ids: list[Tensor], lengths: list[int]) -> Tensor:
        """See `Baseline`."""
        tokens = self.encode(torch.cat(ids)).split(lengths)
        layers = [pad_packed_sequence(pack_sequence([torch.cat([x, x], dim=1) for x in tokens]), batch_first=True)[0]]
        directions = []
        for direction, lstms in enumerate(self.lstms):
            x = pack_sequence([sentence.flip(0) if direction else sentence for sentence in tokens])
            found = []
            for number, lstm in enumerate(lstms):
                y, _ = lstm(x)
                x = y._replace(data=y.data + x.data) if number and self.bilm.config.lstm.use_skip_connections else y
                padded = pad_packed_sequence(x, batch_first=True)[0]
                if direction:
                    padded = torch.stack([torch.cat([p[:n].flip(0), p[n:]]) for p, n in zip(padded, lengths, strict=True)])
                found.append(padded)
            directions.append(found)
        return torch.stack(layers + [torch.cat(pair, dim=2) for pair in zip(*directions, strict=True)])


def torch_lstm(layer: nn.Module) -> nn.LSTM:
    """A layer's weights in torch's own LSTM, without gradients."""
    config = layer.config
    proj_size = config.projection_size if config.has_projection else 0
    lstm = nn.LSTM(config.projection_size, config.cell_size, proj_size=proj_size)

    def reorder(gates: Tensor) -> Tensor:  # ours i, j, f, o; torch's i, f, g, o
        i, j, f, o = gates.chunk(4)
        return torch.cat([i, f, j, o])

    bias = layer.bias.detach().clone()
    bias.chunk(4)[2].add_(1.0)
    state = {
        "weight_ih_l0": reorder(layer.input_weight),
        "weight_hh_l0": reorder(layer.recurrent_weight),
        "bias_ih_l0": reorder(bias),
        "bias_hh_l0": torch.zeros_like(bias),
    }
    if proj_size:
        state["weight_hr_l0"] = layer.projection
    lstm.load_state_dict(state)
    return lstm.requires_grad_(False)
