"""FSMN-VAD as one GGUF file: in FunASR's layout, or in this project's, which adds the checkpoint's small files.

A directory with an ONNX file has no configuration. An equivalent one is written for it, so that the file can be read
like any other.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch
import yaml
from torch import Tensor

from workbench.audio.cmvn import read_am_mvn
from workbench.conversion import funasr_layout
from workbench.conversion.files import embedded_files, funasr_files
from workbench.conversion.plan import Plan, Value
from workbench.conversion.tensors import plan_cmvn, plan_tensors
from workbench.core.errors import BadInput
from workbench.families.voice_activity.fsmn_vad import (
    MODELS,
    MVN,
    DetectorConfig,
    FsmnConfig,
    FsmnVadModel,
    read_fsmn_vad,
)
from workbench.families.voice_activity.fsmn_vad_onnx import read_onnx_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors, read_state_dict
from workbench.runtimes.pytorch.fsmn_vad import FsmnNetwork

ARCHITECTURE = "fsmn-vad"


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory; raises `BadInput` for a bad checkpoint."""
    directory = directory.resolve()
    model = read_fsmn_vad(directory)
    config, tensors = _network(model)
    check_tensors(build(FsmnNetwork, config).state_dict(), tensors, f"{model.name}/{model.weights.name}")
    cmvn = read_am_mvn(model.cmvn_file)
    if cmvn.width != config.input_dim:
        raise BadInput(f"{model.name}/{model.cmvn_file.name} has {cmvn.width} values; expected {config.input_dim}")
    planned = [*plan_cmvn(cmvn), *plan_tensors(tensors, model.weights)]
    values = _values(config, model)
    if layout == "funasr":
        rule = funasr_layout.type_rule()
        return [Plan(ARCHITECTURE, values, planned, rule, ("f32",), notes=_notes(config, model))]
    files: dict[str, Path | bytes] = {**funasr_files(directory, model.cmvn_file)}
    if model.network is None:
        files |= {"config.yaml": _written_config(config, model), MVN: model.cmvn_file}
    return [Plan(ARCHITECTURE, {**values, **embedded_files("fsmn_vad", files)}, planned)]


def _network(model: FsmnVadModel) -> tuple[FsmnConfig, dict[str, Tensor]]:
    if model.network is not None:
        return model.network, read_state_dict(model.weights)
    config, arrays = read_onnx_weights(model.weights)
    return config, {name: torch.from_numpy(array) for name, array in arrays.items()}


def _values(config: FsmnConfig, model: FsmnVadModel) -> dict[str, Value]:
    fields = ("input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers", "lorder")
    return {
        **{f"vad.{name}": getattr(config, name) for name in (*fields, "output_affine_dim", "output_dim")},
        "vad.n_mels": model.frontend.n_mels,
        "vad.lfr_m": model.frontend.lfr_m,
        "vad.lfr_n": model.frontend.lfr_n,
    }


def _written_config(config: FsmnConfig, model: FsmnVadModel) -> bytes:
    frontend = model.frontend
    content = {
        "model": MODELS[0],
        "encoder_conf": asdict(config),
        "frontend_conf": {"lfr_m": frontend.lfr_m, "lfr_n": frontend.lfr_n, "n_mels": frontend.n_mels},
    }
    return yaml.safe_dump(content).encode()


def _notes(config: FsmnConfig, model: FsmnVadModel) -> list[str]:
    differences = []
    if config.lstride != 1:
        differences.append(f"a memory of every {config.lstride}th frame")
    if model.frontend.n_mels != 80 or model.frontend.window != "hamming":
        differences.append(f"{model.frontend.n_mels} mel bands of {model.frontend.window} windows")
    if model.detector != DetectorConfig():
        differences.append("other times and thresholds in model_conf")
    return funasr_layout.differences_note(model.name, differences)
