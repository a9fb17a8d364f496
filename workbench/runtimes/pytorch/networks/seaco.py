"""SeACo's hotword branch in PyTorch: bias encoder, second decoder, and the choice between both decoders' logits.

Shi et al., "SeACo-Paraformer: A Non-Autoregressive ASR System with Flexible and Effective Hotword Customization
Ability", ICASSP 2024. Axes: B batch, N tokens, H hotwords, D width, V vocabulary. Parameter names are the published
ones; the embedding is that of Paraformer's decoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from workbench.families.sanm.seaco import EMBEDDING, FILTER_LAYERS, FILTER_STACK, FILTERED, Hotwords, SeacoConfig
from workbench.runtimes.pytorch.networks.sanm_decoder import SanmDecoder
from workbench.runtimes.pytorch.tap import Tap, no_tap

LAYERS = 2  # of the bias encoder


class SeacoBranch(nn.Module):
    """The networks that hotwords need."""

    def __init__(self, config: SeacoConfig, vocabulary: int):
        super().__init__()
        width, bidirectional = config.width, config.bidirectional
        self.no_bias = config.no_bias
        self.decoder = nn.ModuleDict({"embed": nn.ModuleList([nn.Embedding(vocabulary, width)])})
        self.bias_encoder = nn.LSTM(width, width, LAYERS, batch_first=True, bidirectional=bidirectional)
        self.lstm_proj = nn.Linear(2 * width, width) if bidirectional else None
        self.seaco_decoder = SanmDecoder(config.decoder, width, None)
        self.hotword_output_layer = nn.Linear(width, vocabulary)

    def vectors(self, hotwords: Hotwords) -> Tensor:
        """Returns a vector of each hotword, [H, D]: the LSTM's output at its last token."""
        table = self.get_parameter(EMBEDDING)
        words = [table[torch.tensor(ids, device=table.device)] for ids in hotwords]
        states, _ = self.bias_encoder(pack_sequence(words, enforce_sorted=False))
        ends = torch.stack([state[-1] for state in unpack_sequence(states)])
        return ends if self.lstm_proj is None else self.lstm_proj(ends)

    def scores(self, vectors: Tensor, hidden: Tensor, tap: Tap = no_tap) -> Tensor:
        """Returns how much the tokens attend to each hotword, [H], summed over the tokens and the heads.

        Args:
            vectors: of the hotwords, [H, D].
            hidden: the first decoder's output [N, D].
        """
        x, memory = hidden[None], vectors[None]
        layers = self.seaco_decoder.layers
        for number, layer in enumerate(layers[:FILTER_LAYERS]):
            x = tap(f"{FILTER_STACK}.layers.{number}", layer(x, None, memory, None))
        weights = layers[FILTER_LAYERS].attention_weights(x, memory)
        return tap(f"{FILTER_STACK}.scores", weights.sum(dim=(1, 2)))[0]

    def select(self, vectors: Tensor, hidden: Tensor, tap: Tap = no_tap) -> Tensor:
        """Returns the vectors that a recording keeps, [at most FILTERED + 1, D]: those with the highest scores, and
        the end of the list. The arguments are those of `scores`.
        """
        if len(vectors) <= FILTERED:
            return vectors
        best = self.scores(vectors, hidden, tap).topk(min(FILTERED, len(vectors) - 1)).indices
        return torch.cat([vectors[best], vectors[-1:]])

    def decode(self, vectors: Tensor, x: Tensor, stack: str, tap: Tap = no_tap) -> Tensor:
        """Returns one pass of the second decoder over x [N, D], [N, D]; taps the stages `stack.*`.

        Args:
            vectors: of the hotwords, from `select`.
        """
        return self.seaco_decoder.hidden(vectors[None], None, x[None], None, tap, stack)[0]

    def merge_logits(self, attended: Tensor, logits: Tensor, tap: Tap = no_tap) -> Tensor:
        """Returns log-probabilities [N, V]. A token for which the branch names a hotword has the branch's row; others
        have the first decoder's.

        Args:
            attended: the sum of both passes, [N, D].
            logits: of the first decoder, [N, V].
        """
        decoder_log_probs = tap("seaco.decoder.logits", logits[None])[0].log_softmax(dim=-1)
        biased = tap("seaco.logits", self.hotword_output_layer(attended)[None])[0].log_softmax(dim=-1)
        return torch.where((biased.argmax(dim=-1) == self.no_bias)[:, None], decoder_log_probs, biased)
