"""Audio parts of SpeechLMs with drawn weights, as transformers' networks and as GGUF files of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from tests.support.tiny_speechlm import ACOUSTIC, SEMANTIC
from workbench.conversion.plan import Plan
from workbench.conversion.speechlm_audio import AudioPart, plan_codec
from workbench.conversion.writer import write
from workbench.formats.gguf_file import GgufFile, read_gguf

CODES = 24


def write_part(path: Path, part: AudioPart, quantization: str = "f32") -> GgufFile:
    """A file of one part."""
    write([Plan("speechlm-audio", part.values, part.tensors)], quantization, path)
    return read_gguf(path)


def codec_settings(
    acoustic: Mapping[str, Any] = {}, semantic: Mapping[str, Any] = {}, **changes: Any
) -> dict[str, Any]:
    """What stands in a small codec's config.json; five codebooks of 24 codes."""
    return {
        "acoustic_model_config": {**ACOUSTIC, **acoustic},
        "semantic_model_config": {**SEMANTIC, **semantic},
        "codebook_size": CODES,
        "target_bandwidths": [0.5, 1.5],
        **changes,
    }


def drawn_codec(settings: Mapping[str, Any], seed: int = 1) -> Any:
    """Transformers' codec with weights of a size that keeps values near one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = transformers.XcodecModel(transformers.XcodecConfig(**_copied(settings))).eval()
        with torch.no_grad():
            for name, value in network.named_parameters():
                if "alpha" in name:
                    value.uniform_(0.2, 2)
                elif value.ndim > 1 and "original" not in name:
                    value.normal_(0, 0.5 / value[0].numel() ** 0.5)
                elif "norm" not in name:
                    value.normal_(0.05, 0.1)
            for quantizer in network.quantizer.quantizers:
                quantizer.codebook.embed.normal_()
    return network.requires_grad_(False)


def codec_tensors(network: Any) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in network.state_dict().items()}


def codec_file(
    path: Path, settings: Mapping[str, Any], network: Any, streams: int = 4, quantization: str = "f32"
) -> GgufFile:
    """A file of a codec."""
    part = plan_codec(_copied(settings), codec_tensors(network), streams, "it")
    return write_part(path, part, quantization)


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that transformers may change."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
