"""FireRedASR's encoder and adapter inside vLLM: the modules are vLLM's, lengths and stages are this project's.

vLLM's class pads every recording to 30 seconds and has one rule for lengths. Here a batch is padded to its longest
chunk, and the caller says which frames count as speech (`families.conformer.valid_frames`). It computes in float32,
whatever the language model's type is. This file knows neither vLLM's engine nor its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.models.conformer_encoder import ConformerEncoder
from vllm.model_executor.models.fireredasr2 import FireRedASR2Adapter
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper
from vllm.utils.torch_utils import set_default_torch_dtype

from workbench.families.speech_llm.conformer import SUBSAMPLING, ConformerConfig, encoder_frames
from workbench.runtimes.vllm.models.batching import batches
from workbench.trace.recorder import Recorder

ADAPTOR, CONVOLUTION = "adaptor.output", ".convolution"  # one stage by its name, the others by the end of their names

SCORES = 2  # scores per head and pair of frames: by distance, and by key
UPSTREAM_NAMES = WeightsMapper(  # maps the feed-forward modules, which the checkpoint numbers
    orig_to_new_substr={".net.0.": ".pre_layer_norm.", ".net.1.": ".linear_expand.", ".net.4.": ".linear_project."}
)


class FireRedTower(nn.Module):
    """Encoder and adapter with the checkpoint's parameter names, in float32.

    Create it where vLLM's distributed state is initialised, as in a worker.

    Args:
        config: of the encoder.
        width: of the language model's embeddings, H.
        downsample_rate: encoder frames per embedding.
    """

    def __init__(self, config: ConformerConfig, width: int, downsample_rate: int):
        super().__init__()
        self.config = config
        self.downsample_rate = downsample_rate
        with set_default_torch_dtype(torch.float32):  # vLLM creates models in the model's dtype
            self.encoder = ConformerEncoder(
                idim=config.idim,
                n_layers_enc=config.n_layers,
                n_head=config.n_head,
                d_model=config.d_model,
                kernel_size=config.kernel_size,
                pe_maxlen=config.pe_maxlen,
            )
            self.encoder_projector = FireRedASR2Adapter(config.d_model, width, downsample_rate)

    def forward(
        self,
        features: Sequence[Tensor],
        valid: Sequence[int],
        recorders: Sequence[Recorder | None] | None = None,
    ) -> list[Tensor]:
        """Returns the embeddings [n, H] of each chunk; `families.fireredasr.speech_tokens` computes n.

        Chunks of similar length are computed together; the others change a chunk's result by rounding only.

        Args:
            features: of each chunk [L, mels], after CMVN.
            valid: encoder frames of each chunk that count as speech; at least one.
            recorders: for each chunk's own rows of the stages in float32; None for no recording.
        """
        lengths = [max(len(rows), SUBSAMPLING * self.downsample_rate) for rows in features]
        embeddings: list[Tensor] = [torch.empty(0)] * len(features)
        frames = [encoder_frames(length) for length in lengths]
        for batch in batches(frames, SCORES * self.config.n_head):
            batch_valid = [valid[n] for n in batch]
            batch_recorders = [recorders[n] if recorders else None for n in batch]
            with self._recording_stages(batch_recorders, [frames[n] for n in batch], batch_valid):
                hidden = self._embed([features[n] for n in batch], max(lengths[n] for n in batch), batch_valid)
            for row, n in enumerate(batch):
                embeddings[n] = hidden[row, : frames[n] // self.downsample_rate]
        return embeddings

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Loads `encoder.*` and `encoder_projector.*` by the checkpoint's names; returns this network's names of
        them.
        """
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=UPSTREAM_NAMES)
        return loaded

    def _embed(self, features: Sequence[Tensor], longest: int, valid: Sequence[int]) -> Tensor:
        """Returns embeddings [B, ceil(longest / 4) // rate, H]; pads the features with zeros, as in training."""
        padded = features[0].new_zeros(len(features), longest, self.config.idim, dtype=torch.float32)
        for row, rows in zip(padded, features, strict=True):
            row[: len(rows)] = rows
        # vLLM's mask takes every fourth feature frame before a length as a valid encoder frame.
        counted = torch.tensor(valid, device=padded.device) * SUBSAMPLING
        encoded, _, _ = self.encoder(padded, counted)
        embeddings: Tensor = self.encoder_projector(encoded, counted)[0]
        return embeddings

    @contextmanager
    def _recording_stages(
        self, recorders: Sequence[Recorder | None], frames: Sequence[int], valid: Sequence[int]
    ) -> Iterator[None]:
        """Records the wanted stages within the block; sets no hooks if there are none."""
        row_recorders = [(row, recorder) for row, recorder in enumerate(recorders) if recorder is not None]
        handles = []

        def record(stage: str, value: Tensor) -> None:
            for row, recorder in row_recorders:
                if not recorder.wanted(stage):
                    continue
                rows = value[row].T if stage.endswith(CONVOLUTION) else value[row]
                count = frames[row] // self.downsample_rate if stage == ADAPTOR else frames[row]
                copy = rows[:count].detach().to("cpu", torch.float32, copy=True)
                if stage.endswith(CONVOLUTION):
                    copy[valid[row] :] = 0  # vLLM's module does so in place, after the hook
                recorder.put(stage, copy.numpy())

        def hook(stage: str) -> Any:
            return lambda _module, _inputs, output: record(stage, output[0] if isinstance(output, tuple) else output)

        try:
            if row_recorders:
                for stage, module in self._stages():
                    handles.append(module.register_forward_hook(hook(stage)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _stages(self) -> Iterator[tuple[str, nn.Module]]:
        """Yields the stages and their modules, in the order of the computation."""
        block: Any
        yield "encoder.input", self.encoder.input_preprocessor
        for number, block in enumerate(self.encoder.layer_stack):
            stage = f"encoder.layers.{number}"
            yield f"{stage}.attention", block.mhsa.fc
            yield f"{stage}{CONVOLUTION}", block.conv.pointwise_conv2
            yield stage, block
        yield "encoder.output", self.encoder
        yield ADAPTOR, self.encoder_projector
