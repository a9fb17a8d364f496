"""The audio encoder of a SpeechLM on PyTorch: Whisper's log-mel features, Qwen3-Omni's audio tower, and the adaptor.

The features and the tower are transformers' own. This file knows no language model but its width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput, message_of
from workbench.families.speechlm.model import TOWER_PREFIX
from workbench.families.speechlm.parts import Tower
from workbench.pipelines.conversation.speechlm_frontend import TowerFrontend
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors, load_into
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside_stack
from workbench.runtimes.pytorch.inner_stages.layer_maps import TOWER
from workbench.runtimes.pytorch.numerics.arithmetic import HALVES, keeping_float64
from workbench.runtimes.pytorch.numerics.products import FLOAT32, Arithmetic
from workbench.runtimes.pytorch.tap import tap_into, tap_output
from workbench.trace.recorder import Recorder

CONVOLVED = 16  # most chunks of frames that the convolutions take at once, which bounds their memory


class AudioEncoder:
    """The audio tower and the adaptor, loaded with the first recording.

    Args:
        tensors: by the checkpoint's names, mapped from `files`.
        width: of the language model.
        where: the name of the weights in messages.
        arithmetic: the types that tower and adaptor compute in.

    Raises `BadInput` for settings that describe no tower, or for missing, extra or misshapen tensors.
    """

    def __init__(
        self,
        tower: Tower,
        tensors: Mapping[str, Tensor],
        width: int,
        device: torch.device,
        where: str,
        files: Sequence[Path] = (),
        arithmetic: Arithmetic = FLOAT32,
    ):
        self.tower, self.device, self.dtype = tower, device, arithmetic.values
        self._arithmetic = arithmetic
        self._where, self._files = where, tuple(files)
        self.frontend = TowerFrontend(tower)
        self._network = tower_network(tower, width, where, self.dtype)
        check_tensors(self._network.state_dict(), tensors, where, described_in="its configuration")
        self._unloaded: Mapping[str, Tensor] | None = tensors

    @property
    def _encoder(self) -> Any:
        return self._network.get_submodule(TOWER_PREFIX.rstrip("."))

    def _load(self) -> None:
        if self._unloaded is None:
            return
        load_into(
            self._network,
            self._unloaded,
            self._where,
            mapped_from=self._files,
            described_in="its configuration",
            dtype=self.dtype,
        )
        finalise_weights(self._network, self.device, *self._files, arithmetic=self._arithmetic)
        encoder, table = self._encoder, self._encoder.positional_embedding
        with keeping_float64(self.dtype):  # a table of sinusoids, which checkpoints do not hold
            encoder.positional_embedding = type(table)(table.length, table.channels, table.max_timescale)
        encoder.to(self.device)
        if self._arithmetic.is_mixed:  # the sums of its layers begin with what the convolutions give
            encoder.conv_out.register_forward_hook(lambda _module, _inputs, output: output.to(self.dtype))
        self._unloaded = None

    @torch.inference_mode()
    def __call__(self, samples: np.ndarray, recorder: Recorder | None = None) -> Tensor:
        """Returns embeddings [n, width] of a recording, 16 kHz float32.

        Raises `BadInput` for a recording that is too short, silent, or holds values that are not numbers.
        """
        self.frontend.check(samples)
        self._load()
        tap = tap_into(recorder)
        features = self.frontend.features(samples)
        mel = tap("tower.mel", torch.from_numpy(features).to(self.device, self.dtype)[None])[0]
        encoder = self._encoder
        with contextlib.ExitStack() as hooks, keeping_float64(self.dtype):
            for number, layer in enumerate(encoder.layers):
                # Its layers have no batch dimension, which a tap expects.
                hooks.callback(tap_output(layer, f"tower.layers.{number}", _unbatched(tap)).remove)
            hooks.enter_context(looking_inside_stack("tower.layers", encoder.layers, TOWER, recorder))
            lengths = torch.tensor([len(mel)], device=self.device)
            encoded = encoder(mel.T, feature_lens=lengths, **self._windows(len(mel))).last_hidden_state
            encoded = tap("tower.output", encoded[None])
            embeddings: Tensor = tap("adaptor.output", self._network.get_submodule("adaptor.continuous_audio")(encoded))
        return embeddings[0].to(self.dtype)

    def _windows(self, frames: int) -> dict[str, Tensor]:
        """Returns which rows after the convolutions belong to whole chunks, and where the attention's windows begin."""
        windows = self.frontend.windows(frames)
        return {
            "valid_indices": torch.from_numpy(windows.valid).to(self.device),
            "cu_seqlens": torch.tensor(windows.bounds, dtype=torch.int32, device=self.device),
        }


def _unbatched(tap: Any) -> Any:
    def tap_frames(stage: str, value: Tensor) -> Tensor:
        tapped: Tensor = tap(stage, value[None])[0]
        return tapped

    return tap_frames


def tower_network(tower: Tower, width: int, where: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Returns tower and adaptor to `width`, without memory for their parameters, under the checkpoint's names.

    Raises `BadInput` for settings that describe no tower; `where` names the weights.
    """
    try:
        return build(_network, tower, width, dtype)
    except Exception as error:  # transformers raises many kinds
        raise BadInput(
            f"the settings of the audio tower of {where} describe no network: {message_of(error)}"
        ) from error


def _network(tower: Tower, width: int, dtype: torch.dtype) -> nn.Module:
    """Builds tower and adaptor in containers that give their tensors the checkpoint's names."""
    from transformers import AutoConfig
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder

    config: Any = AutoConfig.for_model("qwen3_omni_moe_audio_encoder", **dict(tower.settings))
    if dtype in HALVES.values():
        config._attn_implementation = "eager"  # rounds every step, as ports do
    config.conv_chunksize = min(config.conv_chunksize, CONVOLVED)
    network = nn.ModuleDict()
    *names, last = TOWER_PREFIX.rstrip(".").split(".")
    place = network
    for name in names:
        place[name] = nn.ModuleDict()
        place = place[name]  # type: ignore[assignment]
    place[last] = Qwen3OmniMoeAudioEncoder(config)
    network["adaptor"] = nn.ModuleDict({"continuous_audio": nn.Linear(tower.width, width)})
    return network
