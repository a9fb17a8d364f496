"""Fun-ASR-Nano: one file with encoder, adaptor, CTC branch and language model; in FunASR's layout the pair for its
runtime, which has no CTC branch.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from workbench.audio.cmvn import read_am_mvn
from workbench.conversion import funasr_layout
from workbench.conversion.files import LANGUAGE_FILES, embedded_files, funasr_files, small_files
from workbench.conversion.language import LanguagePart, language_name, plan_language
from workbench.conversion.plan import Plan, PlannedTensor, Value, usual_type
from workbench.conversion.tensors import plan_cmvn, plan_tensors, tensor_rows
from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.speech_llm.funasr_nano import (
    CTC_TOKENS,
    UNUSED_TENSORS,
    CtcBranch,
    FunasrNanoModel,
    read_funasr_nano,
    with_vocabulary,
)
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.weights import build, check_tensors
from workbench.runtimes.pytorch.funasr_nano import read_parts
from workbench.runtimes.pytorch.nano_ctc import CtcBranchNetwork, branch_tensors
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder

ARCHITECTURE = "funasr-nano"
RUNTIME_ARCHITECTURE = "funasr-sensevoice-encoder"  # the architecture of FunASR's encoder file
CTC_OUTPUT = "ctc.ctc_lo.weight"
RUNTIME_CONTEXT = 2048  # positions that FunASR's runtime has room for


def plans(directory: Path, layout: str) -> list[Plan]:
    """Returns the plan of a checkpoint directory, or of FunASR's pair; raises `BadInput` for a bad checkpoint."""
    model = read_funasr_nano(directory)
    weights = model.checkpoint.weights
    weights_name = name_in_folder(weights)
    speech, language = read_parts(model)
    expected = build(NanoEncoder, model.encoder, model.adaptor).state_dict()
    check_tensors(expected, speech, weights_name, UNUSED_TENSORS)
    encoder = plan_tensors({name: tensor for name, tensor in speech.items() if name in expected}, weights)
    regions = mapped_regions(weights)
    language_part = plan_language(
        model.language, model.tokenizer, language, lambda _, tensor: tensor_rows(tensor, regions), weights_name
    )
    values = _values(model)
    if layout == "funasr":
        rule, types = funasr_layout.type_rule(), funasr_layout.TYPES
        language_values = {**language_name(model.language.directory), **language_part.values}
        return [
            Plan(RUNTIME_ARCHITECTURE, values, encoder, rule, types, notes=_notes(model)),
            Plan(
                language_part.architecture,
                language_values,
                language_part.tensors,
                usual_type,
                types,
                suffix="-llm",
                notes=language_part.notes,
            ),
        ]
    cmvn = plan_cmvn(read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
    branch, branch_notes = _ctc_branch(model, branch_tensors(speech), weights, weights_name)
    tensors = [*cmvn, *encoder, *branch, *language_part.tensors]
    values |= _language_values(model, language_part, bool(branch))
    notes = [*language_part.notes, *branch_notes]
    return [Plan(ARCHITECTURE, values, tensors, notes=notes, sources=(model.language.directory,))]


def _ctc_branch(
    model: FunasrNanoModel, tensors: dict[str, Tensor], weights: Path, where: str
) -> tuple[list[PlannedTensor], list[str]]:
    """Returns the tensors of the CTC branch; or none, and a note if the checkpoint has a branch that cannot be used."""
    reason = with_vocabulary(model.ctc)
    if isinstance(reason, CtcBranch):
        try:
            check_tensors(build(CtcBranchNetwork, reason).state_dict(), tensors, where)
            return plan_tensors(tensors, weights, tables=(CTC_OUTPUT,)), []
        except BadInput as error:
            reason = str(error)
    return [], [f"the CTC branch is left out: {reason}"] if tensors else []


def _language_values(model: FunasrNanoModel, language_part: LanguagePart, has_branch: bool) -> dict[str, Value]:
    directory = model.language.directory
    tokens = {CTC_TOKENS: model.ctc.tokens} if has_branch and isinstance(model.ctc, CtcBranch) else {}
    files = {
        **funasr_files(model.checkpoint.directory, model.cmvn_file),
        **tokens,
        **small_files(directory, LANGUAGE_FILES, directory.name),
    }
    return {
        "workbench.language.architecture": language_part.architecture,
        **language_part.values,
        **embedded_files("funasr_nano", files),
    }


def _values(model: FunasrNanoModel) -> dict[str, Value]:
    encoder, adaptor, frontend = model.encoder, model.adaptor, model.frontend
    return {
        "funasr.enc.input_size": encoder.input_size,
        "funasr.enc.output_size": encoder.output_size,
        "funasr.enc.attention_heads": encoder.attention_heads,
        "funasr.enc.linear_units": encoder.linear_units,
        "funasr.enc.num_blocks": encoder.num_blocks,
        "funasr.enc.tp_blocks": encoder.tp_blocks,
        "funasr.enc.kernel_size": encoder.kernel_size,
        "funasr.enc.sanm_shfit": encoder.sanm_shift,
        "funasr.adp.llm_dim": adaptor.llm_dim,
        "funasr.adp.encoder_dim": adaptor.encoder_dim,
        "funasr.adp.ffn_dim": adaptor.ffn_dim,
        "funasr.adp.n_layer": adaptor.n_layer,
        "funasr.adp.attention_heads": adaptor.attention_heads,
        "funasr.adp.downsample_rate": adaptor.downsample_rate,
        "funasr.frontend.n_mels": frontend.n_mels,
        "funasr.frontend.lfr_m": frontend.lfr_m,
        "funasr.frontend.lfr_n": frontend.lfr_n,
    }


def _notes(model: FunasrNanoModel) -> list[str]:
    differences = [
        *funasr_layout.frontend_differences(model.frontend),
        *funasr_layout.encoder_differences(model.encoder),
    ]
    if not model.encoder.tp_blocks:
        differences.append("an encoder without second stage")
    if model.adaptor.downsample_rate != 1:
        differences.append(f"an adaptor with downsample_rate {model.adaptor.downsample_rate}")
    if not model.adaptor.use_low_frame_rate:
        differences.append("an adaptor without use_low_frame_rate")
    if model.cmvn_file:
        differences.append("features with CMVN")
    if not model.sys_prompt or not model.do_think:
        differences.append("a prompt without system message or with an empty thought")
    if model.language.context < RUNTIME_CONTEXT:
        differences.append(f"a context of {model.language.context} tokens")
    return funasr_layout.differences_note(model.checkpoint.directory.name, differences)
