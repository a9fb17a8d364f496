"""Common parts of the files for FunASR's C++ runtime: the types of their tensors, and that runtime's assumptions.

The files differ from those of its export scripts in two ways. Dimensions come from the checkpoint instead of constants
of the published models, and `embed.weight` stays f32 in f16 files, because that runtime reads it as f32.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.audio.frontend import FrontendConfig
from workbench.conversion.plan import PlannedTensor, TypeRule
from workbench.core.phrases import enumerated
from workbench.families.sanm.encoder import SanmConfig
from workbench.formats.quantization import FUNASR_TYPES, fits

TYPES = FUNASR_TYPES
RUNTIME = "FunASR's C++ runtime"


def type_rule(exact_f16: Sequence[str] = (), exact_q8_0: Sequence[str] = ()) -> TypeRule:
    """Returns an export script's rule of types: matrices except norms get the type, q8_0 if their rows are whole
    blocks.

    Args:
        exact_f16: parts of the names of more tensors that stay f32 in an f16 file.
        exact_q8_0: the same for a q8_0 file.
    """

    def type_of(tensor: PlannedTensor, quantization: str) -> str:
        exact_parts = exact_f16 if quantization == "f16" else exact_q8_0
        if len(tensor.shape) != 2 or any(part in tensor.name for part in ("norm", "fsmn_block", *exact_parts)):
            return "f32"
        return quantization if fits(tensor.shape, quantization) else "f32"

    return type_of


def frontend_differences(frontend: FrontendConfig) -> list[str]:
    """Returns how a front end differs from the one built into the runtime."""
    differences = []
    if (frontend.n_mels, frontend.lfr_m, frontend.lfr_n) != (80, 7, 6):
        differences.append(f"{frontend.lfr_m} stacked frames of {frontend.n_mels} mel bands every {frontend.lfr_n}")
    if (frontend.window, frontend.frame_length, frontend.frame_shift) != ("hamming", 25, 10):
        differences.append(
            f"{frontend.window} windows of {frontend.frame_length:g} ms every {frontend.frame_shift:g} ms"
        )
    differences += ["frames that reach beyond the recording (snip_edges false)"] if not frontend.snip_edges else []
    return differences + (["samples from -1 to 1 (upsacle_samples false)"] if not frontend.upscale_samples else [])


def memory_differences(kernel: int, shift: int, place: str) -> list[str]:
    """Returns how an FSMN memory differs from the runtime's: an odd kernel with its middle on the present frame."""
    differences = [f"an even kernel of {kernel} frames in {place}"] if kernel % 2 == 0 else []
    return [*differences, f"sanm_shfit {shift} in {place}"] if shift else differences


def encoder_differences(encoder: SanmConfig) -> list[str]:
    """Returns how an encoder differs from the runtime's."""
    return memory_differences(encoder.kernel_size, encoder.sanm_shift, "the encoder")


def differences_note(name: str, differences: Sequence[str]) -> list[str]:
    """Returns a sentence that the runtime cannot run the file correctly, or nothing."""
    if not differences:
        return []
    return [
        f"{RUNTIME} cannot run {name} as it should, because its code has other constants than {enumerated(differences)}"
    ]
