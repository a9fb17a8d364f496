"""Fun-ASR-Nano as a directory for vLLM: the checkpoint's tensors under their own names, in a Qwen3 model's directory.

A checkpoint's second decoder, for timestamps, is left out. `config.yaml` and the CMVN file are included, so that this
project's reader finds the same in the directory as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workbench.conversion.vllm_checkpoint.directory import VllmCheckpoint
from workbench.conversion.vllm_checkpoint.language import language_tensors, prefixed
from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, stored_tensor
from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.funasr_nano import UNUSED_TENSORS, FunasrNanoModel, read_funasr_nano
from workbench.families.speech_llm.funasr_nano_chat import chat_template
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors
from workbench.runtimes.pytorch.funasr_nano import LANGUAGE_PREFIX, read_parts
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder

ARCHITECTURE = "SpeechWorkbenchFunASRNano"
CMVN = "am.mvn"
CHUNK_SECONDS = 30  # length of the chunks into which vLLM's own class cuts longer recordings


def plan(directory: Path) -> VllmCheckpoint:
    """Plans the directory of a checkpoint; raises `BadInput` for a bad checkpoint."""
    model = read_funasr_nano(directory)
    weights = model.checkpoint.weights
    weights_name = name_in_folder(weights)
    speech, language = read_parts(model)
    expected = build(NanoEncoder, model.encoder, model.adaptor).state_dict()
    check_tensors(expected, speech, weights_name, UNUSED_TENSORS)
    regions = mapped_regions(weights)
    encoder = [stored_tensor(name, speech[name], regions, weights_name) for name in expected]
    planned_language, changes = language_tensors(
        model.language, language, prefixed(LANGUAGE_PREFIX, regions, weights_name), weights_name
    )
    return VllmCheckpoint(
        family="funasr_nano",
        language=model.language,
        tensors=[*encoder, *planned_language],
        where=weights_name,
        architecture=ARCHITECTURE,
        config={**changes, **_config(model)},
        special_tokens=(AUDIO,),
        preprocessor=_preprocessor(model),
        chat_template=chat_template(model),
        files=_files(model),
        sources=(model.language.directory,),
    )


def language_part(model: FunasrNanoModel) -> tuple[list[StoredTensor], dict[str, Any], str]:
    """Returns the language model's tensors by transformers' names, its changed configuration, and the source's name."""
    weights = model.checkpoint.weights
    weights_name = name_in_folder(weights)
    _, language = read_parts(model)
    planned_language, changes = language_tensors(
        model.language, language, prefixed("", mapped_regions(weights), weights_name), weights_name
    )
    return planned_language, changes, weights_name


def _config(model: FunasrNanoModel) -> dict[str, Any]:
    """Returns the entries that vLLM's own class reads, besides the language model's."""
    encoder = dict(model.checkpoint.section("audio_encoder_conf"))
    encoder.pop("input_size", None)  # that class sets it itself
    return {"audio_encoder_conf": encoder}


def _preprocessor(model: FunasrNanoModel) -> dict[str, Any]:
    """Returns the entries that vLLM's own class reads; this project's class reads config.yaml instead."""
    front = model.frontend
    return {
        "feature_extractor_type": "FunASRFeatureExtractor",
        "processor_class": "FunASRProcessor",
        "feature_size": front.width,
        "sampling_rate": front.fs,
        "hop_length": round(front.fs * front.frame_shift / 1000),
        "chunk_length": CHUNK_SECONDS,
        "n_fft": 400,
        "padding_value": 0.0,
        "dither": 0.0,
        "max_length": 1000,
        "return_attention_mask": False,
        "frontend_conf": {
            "fs": front.fs,
            "window": front.window,
            "n_mels": front.n_mels,
            "frame_length": front.frame_length,
            "frame_shift": front.frame_shift,
            "lfr_m": front.lfr_m,
            "lfr_n": front.lfr_n,
            "snip_edges": front.snip_edges,
            "upsacle_samples": front.upscale_samples,
            "cmvn_file": CMVN if model.cmvn_file else None,
        },
    }


def _files(model: FunasrNanoModel) -> dict[str, bytes]:
    """Returns the checkpoint's configuration with this directory's paths, and its CMVN."""
    config = {name: value for name, value in model.checkpoint.config.items() if name != "init_param"}
    config["llm_conf"] = {**_section(model, "llm_conf"), "init_param_path": "."}
    config["frontend_conf"] = {**_section(model, "frontend_conf"), "cmvn_file": CMVN if model.cmvn_file else None}
    try:
        text = yaml.safe_dump(config, allow_unicode=True, sort_keys=False)
        cmvn = {CMVN: model.cmvn_file.read_bytes()} if model.cmvn_file else {}
    except (yaml.YAMLError, OSError) as error:
        raise BadInput(f"the files of {model.checkpoint.directory.name} cannot be copied: {error}") from error
    return {"config.yaml": text.encode(), **cmvn}


def _section(model: FunasrNanoModel, name: str) -> Mapping[str, Any]:
    return model.checkpoint.section(name)
