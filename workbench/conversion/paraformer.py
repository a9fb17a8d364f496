"""Paraformer as one GGUF file: in FunASR's layout, or in this project's, which adds the checkpoint's small files.

It also converts BiCif and SeACo checkpoints. FunASR's layout has no place for SeACo's hotword branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from workbench.audio.cmvn import read_am_mvn
from workbench.conversion import funasr_layout
from workbench.conversion.files import embedded_files, funasr_files
from workbench.conversion.plan import Plan, Value
from workbench.conversion.tensors import plan_cmvn, plan_tensors
from workbench.core.phrases import name_in_folder
from workbench.families.sanm.paraformer import ParaformerModel, read_paraformer
from workbench.families.sanm.seaco import EMBEDDING, UNUSED, segment_file
from workbench.families.vocabularies.funasr import token_file
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors, read_state_dict
from workbench.runtimes.pytorch.networks.seaco import SeacoBranch
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork

ARCHITECTURE = "paraformer"
RUNTIME_ENCODER = (512, 4, 11)  # width, attention heads, kernel: constants of FunASR's C++ code
TABLES = ("decoder.output_layer.weight", "hotword_output_layer.weight", EMBEDDING)
RUNTIME_DECODER = (4, 11)  # attention heads, kernel


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory; raises `BadInput` for a bad checkpoint."""
    model = read_paraformer(directory)
    weights = model.checkpoint.weights
    tensors = read_state_dict(weights)
    model, where = model.with_branch(tensors), name_in_folder(weights)
    network = build(ParaformerNetwork, model.encoder, model.predictor, model.decoder, len(model.vocabulary))
    used_tensors = _checked(network, tensors, where, model.unused_tensors)
    if model.seaco is not None:
        branch = _checked(build(SeacoBranch, model.seaco, len(model.vocabulary)), model.seaco.tensors(tensors), where)
        if layout != "funasr":
            used_tensors |= branch
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    planned = [*plan_cmvn(cmvn), *plan_tensors(used_tensors, weights, tables=TABLES)]
    values = _values(model)
    if layout == "funasr":
        rule = funasr_layout.type_rule(exact_f16=("cif_output",), exact_q8_0=("predictor",))
        return [Plan(ARCHITECTURE, values, planned, rule, funasr_layout.TYPES, notes=_notes(model))]
    named_files = (token_file(model.checkpoint), segment_file(model.checkpoint))
    files = funasr_files(directory.resolve(), model.cmvn_file, *named_files)
    return [Plan(ARCHITECTURE, {**values, **embedded_files("paraformer", files)}, planned)]


def _checked(
    network: nn.Module, tensors: Mapping[str, Tensor], where: str, unused: Sequence[str] = UNUSED
) -> dict[str, Tensor]:
    """Returns the tensors that the network uses; raises `BadInput` if they do not fit."""
    expected = network.state_dict()
    check_tensors(expected, tensors, where, unused)
    return {name: tensor for name, tensor in tensors.items() if name in expected}


def _values(model: ParaformerModel) -> dict[str, Value]:
    encoder, decoder = model.encoder, model.decoder
    return {
        "pf.enc.output_size": encoder.output_size,
        "pf.enc.attention_heads": encoder.attention_heads,
        "pf.enc.num_blocks": encoder.num_blocks,
        "pf.enc.kernel_size": encoder.kernel_size,
        "pf.dec.num_blocks": decoder.num_blocks,
        "pf.dec.att_layer_num": decoder.att_layer_num,
        "pf.dec.decoders3": 1,
        "pf.dec.attention_heads": decoder.attention_heads,
        "pf.dec.kernel_size": decoder.kernel_size,
        "pf.vocab_size": len(model.vocabulary),
        "pf.vocab": list(model.vocabulary.pieces),
        "pf.predictor.tail_threshold": model.predictor.tail_threshold,
        "pf.predictor.threshold": 1.0,
    }


def _notes(model: ParaformerModel) -> list[str]:
    encoder, decoder, predictor = model.encoder, model.decoder, model.predictor
    differences = [
        *funasr_layout.frontend_differences(model.frontend),
        *funasr_layout.encoder_differences(encoder),
        *funasr_layout.memory_differences(decoder.kernel_size, decoder.sanm_shift, "the decoder"),
    ]
    if (encoder.output_size, encoder.attention_heads, encoder.kernel_size) != RUNTIME_ENCODER:
        differences.append(
            f"an encoder {encoder.output_size} wide with {encoder.attention_heads} attention heads and kernel "
            f"{encoder.kernel_size}"
        )
    if (decoder.attention_heads, decoder.kernel_size) != RUNTIME_DECODER:
        differences.append(f"a decoder with {decoder.attention_heads} attention heads and kernel {decoder.kernel_size}")
    if decoder.num_blocks != decoder.att_layer_num:
        differences.append("decoder blocks without attention")
    if (predictor.left_order, predictor.right_order) != (1, 1):
        differences.append(f"a predictor that looks {predictor.left_order} back and {predictor.right_order} ahead")
    if (predictor.smooth_factor, predictor.noise_threshold) != (1.0, 0.0):
        differences.append(f"smooth_factor {predictor.smooth_factor} and noise_threshold {predictor.noise_threshold}")
    if model.seaco is not None:
        differences.append("hotwords")
    if not model.cmvn_file:
        differences.append("features without CMVN")
    return funasr_layout.differences_note(model.checkpoint.directory.name, differences)
