"""Xcodec on PyTorch: recordings to codes and back, with the network of transformers.

It computes in float32, whatever the language model's type. What decoding needs is loaded at once, the encoder with the
first recording. This file knows no language model.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput, message_of
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights, without_packing
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into
from workbench.runtimes.pytorch.tap import tap_into
from workbench.speech.codec_input import check_branches, check_codes, of_length, whole_frames
from workbench.speech.receptive_field import Convolution, receptive_field
from workbench.trace.recorder import Recorder

DECODER = ("acoustic_decoder.*", "fc2.*", "quantizer.quantizers.*.codebook.embed")
ENCODER = ("acoustic_encoder.*", "semantic_model.*", "encoder_semantic.*", "fc.*")
OLD_NAMES = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}


class Xcodec:
    """A loaded codec; implements `workbench.speech.network.Codec`.

    Args:
        settings: of its `config.json`; empty for transformers' defaults.
        tensors: by transformers' names, mapped from `files`.
        streams: how many of its codebooks the language model uses, from the first on.
        where: the name of the weights in messages.

    Raises `BadInput` for settings that describe no codec, fewer codebooks than streams, or other tensors than the
    codec's.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        streams: int,
        device: torch.device,
        where: str,
        files: Sequence[Path] = (),
    ):
        from transformers import XcodecConfig

        self.streams, self.device = streams, device
        self._where, self._files = where, tuple(files)
        self._unloaded: dict[str, Tensor] = {new_name(name): value for name, value in tensors.items()}
        try:
            self._config = XcodecConfig(**dict(settings))
            self.network = self._load_part(DECODER)
        except BadInput:
            raise
        except Exception as error:  # transformers raises many kinds
            raise BadInput(
                f"the configuration of the codec of {where} describes no codec: {message_of(error)}"
            ) from error
        quantizer = self.network.quantizer
        for each in quantizer.quantizers:
            each.codebook.embed = each.codebook.embed.to(device, copy=True)
        config: Any = self._config
        self.sample_rate: int = config.sample_rate
        self.hop: int = config.hop_length
        self.codes: int = config.codebook_size
        if math.prod(config.acoustic_model_config.upsampling_ratios) != self.hop:
            raise BadInput(f"the codec of {where} makes frames of another length than it takes; expected the same")
        if len(quantizer.quantizers) < streams:
            raise BadInput(
                f"the codec of {where} has {len(quantizer.quantizers)} codebooks; the language model has {streams} "
                "streams; expected at least as many codebooks"
            )
        # A codebook's codes are the same at every bandwidth that includes it. Transformers' own count of them for the
        # widest can be one too few, by rounding.
        quantizer.get_num_quantizers_for_bandwidth = lambda bandwidth=None: streams
        self.receptive_field = decoder_receptive_field(self.network.acoustic_decoder, self.hop)

    def _load_part(self, globs: Sequence[str]) -> Any:
        """Returns the network with only the tensors that match the globs; the others take no memory."""
        from transformers import XcodecModel

        network = build(XcodecModel, self._config)
        load_into(
            network,
            self._unloaded,
            f"{self._where}, codec",
            mapped_from=self._files,
            described_in="its configuration",
            loaded_globs=globs,
        )
        # WavLM's attention multiplies by the weights of its linear layers itself.
        reads_weights = network.config.semantic_model_config.model_type == "wavlm"
        with without_packing() if reads_weights else contextlib.nullcontext():
            finalise_weights(network, self.device, *self._files)
        return network

    @cached_property
    def _encoder(self) -> Any:
        network = self._load_part(ENCODER)
        network.quantizer = self.network.quantizer
        self._unloaded = {}
        return network

    @torch.inference_mode()
    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Returns codes [frames, streams] of float32 samples [n] at `sample_rate`; an incomplete last frame is left
        out. Raises `BadInput` for less than one frame, and for a codec whose encoder cannot read it.
        """
        trimmed = whole_frames(samples, self.hop, self.sample_rate)
        check_branches(*self._rows(len(trimmed)))
        wave = torch.from_numpy(trimmed).to(self.device)[None, None]
        codes = self._encoder.encode(wave, return_dict=False)[0].T
        return of_length(codes.cpu().numpy(), len(trimmed) // self.hop)

    def _rows(self, samples: int) -> tuple[int, int]:
        """Returns how many rows the acoustic and the semantic branch of the encoder give for so many samples.

        As in Xcodec, the acoustic branch gets samples without padding if it then gives as many rows.
        """
        network: Any = self._encoder
        after, padded = network._get_conv1d_output_lengths, samples + 2 * network.pad
        semantic = after(after(padded, network.semantic_model.feature_extractor), network.encoder_semantic)
        plain, acoustic = (after(count, network.acoustic_encoder) for count in (samples, padded))
        return plain if plain == semantic else acoustic, semantic

    @torch.inference_mode()
    def decode(self, codes: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """Returns float32 samples [frames * hop] of codes [frames, streams].

        A recorder gets the stages `codec.codes`, `codec.latents` [frames, width], which enter the decoder, and
        `codec.audio`. Raises `BadInput` for codes that the codebooks do not have.
        """
        if not len(codes):
            return np.zeros(0, dtype=np.float32)
        check_codes(codes, self.streams, self.codes)
        tap, network = tap_into(recorder), self.network
        ids = tap("codec.codes", torch.from_numpy(np.ascontiguousarray(codes)).to(self.device)[None])
        latents = tap("codec.latents", network.fc2(network.quantizer.decode(ids.permute(2, 0, 1)).transpose(1, 2)))
        audio = tap("codec.audio", network.acoustic_decoder(latents.transpose(1, 2))[:, 0])
        samples: np.ndarray = audio[0].cpu().numpy()
        return samples


def decoder_receptive_field(decoder: nn.Module, hop: int) -> tuple[int, int]:
    """Returns how many frames before and after a frame change its samples.

    The decoder registers its convolutions in the order in which it runs them.
    """
    layers = []
    for each in decoder.modules():
        if isinstance(each, (nn.Conv1d, nn.ConvTranspose1d)):
            numbers = each.kernel_size[0], each.stride[0], int(each.padding[0]), int(each.dilation[0])
            layers.append(Convolution(*numbers, transposed=isinstance(each, nn.ConvTranspose1d)))
    return receptive_field(layers, hop)


def new_name(name: str) -> str:
    """Returns the name of a tensor as torch now writes it, with weight normalisation as a parametrization."""
    head, _, last = name.rpartition(".")
    return f"{head}.{OLD_NAMES[last]}" if last in OLD_NAMES else name
