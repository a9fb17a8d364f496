"""A SpeechLM's audio tower and adaptor inside vLLM: Qwen3-Omni's audio encoder of transformers, in float32.

vLLM's own class has windows of Qwen3-Omni's size alone. Here each recording is computed by itself, in the windows of
the checkpoint. This file knows neither vLLM's engine nor its requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder
from vllm.utils.torch_utils import set_default_torch_dtype

from workbench.families.speechlm.parts import Tower
from workbench.pipelines.conversation.speechlm_frontend import TowerFrontend
from workbench.trace.recorder import Recorder

CONVOLVED = 16  # most chunks of frames that the convolutions take at once, which bounds their memory


class SpeechLmTower(nn.Module):
    """Tower and adaptor.

    Args:
        width: of the language model.
    """

    def __init__(self, tower: Tower, width: int):
        super().__init__()
        self.frontend = TowerFrontend(tower)
        config: Any = AutoConfig.for_model("qwen3_omni_moe_audio_encoder", **dict(tower.settings))
        config.conv_chunksize = min(config.conv_chunksize, CONVOLVED)
        with set_default_torch_dtype(torch.float32):  # vLLM creates models in the model's dtype
            self.audio_tower = Qwen3OmniMoeAudioEncoder(config)
            self.adaptor = nn.Linear(tower.width, width)

    def forward(
        self, features: Sequence[Tensor], lengths: Sequence[int], recorders: Sequence[Recorder | None] | None = None
    ) -> list[Tensor]:
        """Returns the embeddings [n, H] of each recording.

        Args:
            features: log-mel features of each [frames, bins].
            lengths: number of frames of each.
            recorders: for each recording's stages in float32; None for no recording.
        """
        each = recorders or [None] * len(features)
        return [self._embed(rows[:length].float(), recorder) for rows, length, recorder in zip(features, lengths, each)]

    def _embed(self, mel: Tensor, recorder: Recorder | None) -> Tensor:
        windows = self.frontend.windows(len(mel))
        _record(recorder, "tower.mel", mel)
        with self._recording_layers(recorder):
            encoded = self.audio_tower(
                mel.T,
                feature_lens=torch.tensor([len(mel)], device=mel.device),
                valid_indices=torch.from_numpy(windows.valid).to(mel.device),
                cu_seqlens=torch.tensor(windows.bounds, dtype=torch.int32, device=mel.device),
            ).last_hidden_state
        _record(recorder, "tower.output", encoded)
        embeddings: Tensor = self.adaptor(encoded)
        _record(recorder, "adaptor.output", embeddings)
        return embeddings

    @contextlib.contextmanager
    def _recording_layers(self, recorder: Recorder | None) -> Iterator[None]:
        """Records the output of each layer within the block."""
        with contextlib.ExitStack() as hooks:
            for number, layer in enumerate(self.audio_tower.layers if recorder is not None else ()):

                def record_output(
                    module: nn.Module, inputs: Any, output: Any, stage: str = f"tower.layers.{number}"
                ) -> None:
                    _record(recorder, stage, output[0] if isinstance(output, tuple) else output)

                hooks.callback(layer.register_forward_hook(record_output).remove)
            yield


def _record(recorder: Recorder | None, stage: str, value: Tensor) -> None:
    if recorder is not None and recorder.wanted(stage):
        recorder.put(stage, value.detach().to("cpu", torch.float32, copy=True).numpy())
