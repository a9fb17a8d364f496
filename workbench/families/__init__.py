"""The table of families: how a checkpoint of each is recognised, its options, and its cell on every runtime.

A new family, or a family's new runtime, is one entry here and the files it names. Nothing is imported until used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.decoding.generation import GenerationOptions


@dataclass(frozen=True)
class Cell:
    """A family on a runtime: the module that opens its sessions, or one sentence why there is none."""

    module: str | None = None
    reason: str | None = None  # which runtimes there are instead is added to it


@dataclass(frozen=True)
class Family:
    """What the registry needs to know of a family."""

    name: str
    title: str
    module: str
    recognise: str  # function of `module`: does this directory hold a checkpoint of the family?
    options: str  # options class of `module`
    cells: Mapping[str, Cell]
    tasks: tuple[str, ...] = ("transcribe",)  # of a model that has no card

    @property
    def reads_text(self) -> bool:
        """Whether its calls take a prompt; those of the others take a recording."""
        return self.tasks == ("generate",)

    @property
    def has_language_model(self) -> bool:
        """Whether an autoregressive language model is in it, whose arithmetic has a type of its own."""
        return issubclass(self.options_class, GenerationOptions)

    def recognises(self, directory: Path) -> bool:
        """Whether the directory holds a checkpoint of this family."""
        return bool(getattr(import_module(self.module), self.recognise)(directory))

    @property
    def options_class(self) -> type[Any]:
        """The dataclass of the family's options (see `workbench.core.options`)."""
        return getattr(import_module(self.module), self.options)

    def cell(self, runtime: str) -> Cell:
        """The family on that runtime; where it cannot run there, the reason says on which it can."""
        cell = self.cells.get(runtime, Cell(reason=f"{self.title} has no {runtime} network"))
        if cell.module:
            return cell
        runnable = " or ".join(name for name, each in self.cells.items() if each.module)
        return Cell(reason=f"{cell.reason}; use {runnable}")


def _family(name: str, title: str, recognise: str, options: str, task: str = "transcribe", **cells: Cell) -> Family:
    return Family(name, title, f"workbench.families.{name}", recognise, options, cells, (task,))


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        _family(
            "sensevoice",
            "SenseVoice",
            "is_sensevoice",
            "SenseVoiceOptions",
            pytorch=Cell("workbench.runtimes.pytorch.sensevoice"),
            gguf=Cell("workbench.runtimes.gguf.sensevoice"),
            vllm=Cell(reason="SenseVoice has no autoregressive part, so there is nothing for vLLM to serve"),
        ),
        _family(
            "paraformer",
            "Paraformer",
            "is_paraformer",
            "ParaformerOptions",
            pytorch=Cell("workbench.runtimes.pytorch.paraformer"),
            gguf=Cell("workbench.runtimes.gguf.paraformer"),
            vllm=Cell(reason="Paraformer has no autoregressive part, so there is nothing for vLLM to serve"),
        ),
        _family(
            "funasr_nano",
            "Fun-ASR-Nano",
            "is_funasr_nano",
            "FunasrNanoOptions",
            pytorch=Cell("workbench.runtimes.pytorch.funasr_nano"),
            gguf=Cell("workbench.runtimes.gguf.funasr_nano"),
            vllm=Cell("workbench.runtimes.vllm.funasr_nano"),
        ),
        _family(
            "fireredasr",
            "FireRedASR-LLM",
            "is_fireredasr",
            "FireRedAsrOptions",
            pytorch=Cell("workbench.runtimes.pytorch.fireredasr"),
            gguf=Cell("workbench.runtimes.gguf.fireredasr"),
            vllm=Cell("workbench.runtimes.vllm.fireredasr"),
        ),
        _family(
            "fsmn_vad",
            "FSMN-VAD",
            "is_fsmn_vad",
            "FsmnVadOptions",
            task="vad",
            pytorch=Cell("workbench.runtimes.pytorch.fsmn_vad"),
            gguf=Cell("workbench.runtimes.gguf.fsmn_vad"),
            vllm=Cell(reason="FSMN-VAD has no autoregressive part, so there is nothing for vLLM to serve"),
        ),
        # Last: a speech model's directory may also be that of a language model.
        _family(
            "causal_lm",
            "Causal language model",
            "is_causal_lm",
            "CausalLmOptions",
            task="generate",
            pytorch=Cell("workbench.runtimes.pytorch.causal_lm"),
            gguf=Cell("workbench.runtimes.gguf.causal_lm"),
            vllm=Cell("workbench.runtimes.vllm.causal_lm"),
        ),
    )
}


def family_of(directory: Path) -> Family:
    """The family whose checkpoint the directory holds; raises `BadInput` where there is none."""
    for family in FAMILIES.values():
        if family.recognises(directory):
            return family
    if (directory / "model.pth.tar").is_file():
        from workbench.families.fireredasr import check_files

        check_files(directory)  # says what is missing
    if not (directory / "config.yaml").is_file():
        if (directory / "config.json").is_file():
            from workbench.families.language import read_language_config

            read_language_config(directory)  # says what is wrong with it
        raise BadInput(
            f"checkpoint directory {directory.name} has no config.yaml; a FunASR checkpoint needs one beside model.pt, "
            "a language model has a config.json, FireRedASR-LLM a model.pth.tar"
        )
    from workbench.families.funasr import read_checkpoint

    model = read_checkpoint(directory).model or "no model"
    known = ", ".join(family.title for family in FAMILIES.values())
    raise BadInput(f"{directory.name}/config.yaml names {model}, which is none of the families here: {known}")
