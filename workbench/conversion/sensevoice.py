"""SenseVoice as one GGUF file: in FunASR's layout, or in this project's, which adds the checkpoint's small files."""

from __future__ import annotations

from pathlib import Path

from workbench.audio.cmvn import read_am_mvn
from workbench.conversion import funasr_layout
from workbench.conversion.files import embedded_files, funasr_files
from workbench.conversion.plan import Plan, Value, usual_type
from workbench.conversion.tensors import plan_cmvn, plan_tensors
from workbench.core.phrases import name_in_folder
from workbench.families.sanm.sensevoice import (
    EVENT_EMOTION_QUERIES,
    LANGUAGE_QUERIES,
    TEXTNORM_QUERIES,
    SenseVoiceModel,
    read_sensevoice,
)
from workbench.families.vocabularies.funasr import token_file
from workbench.formats.quantization import TYPES
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors, read_state_dict
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork

ARCHITECTURE = "sensevoice-small"


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory; raises `BadInput` for a bad checkpoint."""
    model = read_sensevoice(directory)
    weights = model.checkpoint.weights
    tensors = read_state_dict(weights)
    network = build(SenseVoiceNetwork, model.encoder, len(model.vocabulary))
    check_tensors(network.state_dict(), tensors, name_in_folder(weights))
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    planned = [*plan_cmvn(cmvn), *plan_tensors(tensors, weights, tables=("ctc.ctc_lo.weight",))]
    values = _values(model)
    if layout == "funasr":
        rule = funasr_layout.type_rule(exact_f16=("embed.weight",), exact_q8_0=("embed.weight",))
        return [Plan(ARCHITECTURE, values, planned, rule, funasr_layout.TYPES, notes=_notes(model))]
    named_files = (token_file(model.checkpoint), model.checkpoint.file("tokenizer_conf", "bpemodel"))
    files = funasr_files(directory.resolve(), model.cmvn_file, *named_files)
    return [Plan(ARCHITECTURE, {**values, **embedded_files("sensevoice", files)}, planned, usual_type, TYPES)]


def _values(model: SenseVoiceModel) -> dict[str, Value]:
    encoder = model.encoder
    return {
        "sv.input_size": encoder.input_size,
        "sv.output_size": encoder.output_size,
        "sv.attention_heads": encoder.attention_heads,
        "sv.num_blocks": encoder.num_blocks,
        "sv.tp_blocks": encoder.tp_blocks,
        "sv.kernel_size": encoder.kernel_size,
        "sv.vocab_size": len(model.vocabulary),
        "sv.blank_id": model.blank,
        "sv.query_tokens": [LANGUAGE_QUERIES["auto"], *EVENT_EMOTION_QUERIES, TEXTNORM_QUERIES["withitn"]],
        "sv.vocab": list(model.vocabulary.pieces),
    }


def _notes(model: SenseVoiceModel) -> list[str]:
    differences = [
        *funasr_layout.frontend_differences(model.frontend),
        *funasr_layout.encoder_differences(model.encoder),
        *(["an encoder without second stage"] if not model.encoder.tp_blocks else []),
    ]
    notes = funasr_layout.differences_note(model.checkpoint.directory.name, differences)
    if model.cmvn_file:
        notes.append(f"{funasr_layout.RUNTIME} runs SenseVoice without CMVN, whose vectors are in the file")
    return notes
