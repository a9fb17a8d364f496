"""The hotword branch of a SeACo checkpoint on PyTorch: loads it, and changes logits by a list of hotwords."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.core.phrases import name_in_folder
from workbench.families.sanm.paraformer import ParaformerModel
from workbench.families.sanm.seaco import FILTER_LAYERS, FILTER_STACK, STACKS, UNUSED, Hotwords, SeacoConfig
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside_stack
from workbench.runtimes.pytorch.inner_stages.layer_maps import SANM_DECODER
from workbench.runtimes.pytorch.networks.sanm_decoder import Bias
from workbench.runtimes.pytorch.networks.seaco import SeacoBranch
from workbench.runtimes.pytorch.numerics.products import Arithmetic
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.recorder import Recorder


class HotwordBias:
    """A loaded branch; raises `BadInput` if its weights do not fit."""

    def __init__(
        self,
        model: ParaformerModel,
        config: SeacoConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        arithmetic: Arithmetic,
    ):
        weights = model.checkpoint.weights
        self.branch = build(SeacoBranch, config, len(model.vocabulary))
        where, own_tensors = name_in_folder(weights), config.tensors(tensors)
        load_into(self.branch, own_tensors, where, UNUSED, mapped_from=weights, dtype=arithmetic.values)
        exact = ("bias_encoder", "lstm_proj")
        finalise_weights(self.branch, device, weights, arithmetic=arithmetic, exact=exact)
        self._last: tuple[Hotwords, Tensor] | None = None  # one list of hotwords serves many recordings

    def bias(self, hotwords: Hotwords, recorder: Recorder | None = None) -> Bias:
        """Returns the function that changes a batch's logits by hotwords; it records the stages of the first row."""

        def biased(embeddings: Tensor, hidden: Tensor, logits: Tensor, counts: Tensor | None) -> Tensor:
            vectors = tap_into(recorder)("bias_encoder.output", self._vectors(hotwords)[None])[0]
            biased_logits = torch.empty_like(logits)
            for row in range(len(logits)):
                tokens = slice(0, None if counts is None else int(counts[row]))
                parts = (embeddings[row, tokens], hidden[row, tokens], logits[row, tokens])
                biased_logits[row] = 0  # rows of the padding
                biased_logits[row, tokens] = self._biased_row(vectors, *parts, recorder)
            return biased_logits

        return biased

    def _biased_row(
        self, vectors: Tensor, embeddings: Tensor, hidden: Tensor, logits: Tensor, recorder: Recorder | None
    ) -> Tensor:
        """Returns the logits [N, V] of one recording; the arguments are those of the network's methods."""
        tap, branch = tap_into(recorder), self.branch
        layers, passes = branch.seaco_decoder.layers, []
        with looking_inside_stack(f"{FILTER_STACK}.layers", layers[:FILTER_LAYERS], SANM_DECODER, recorder):
            memory = branch.select(vectors, hidden, tap)
        for stack, x in zip(STACKS, (embeddings, hidden), strict=True):
            with looking_inside_stack(f"{stack}.layers", layers, SANM_DECODER, recorder):
                passes.append(branch.decode(memory, x, stack, tap))
        return branch.merge_logits(passes[0] + passes[1], logits, tap)

    @torch.no_grad()
    def _vectors(self, hotwords: Hotwords) -> Tensor:
        if self._last is None or self._last[0] != hotwords:
            self._last = hotwords, self.branch.vectors(hotwords)
        return self._last[1]
