"""The descriptor of a model family: everything that the project knows about it, in one place.

A part that is code stands here as a *lazy name*: a module, or a module and something in it, such as
`workbench.training.recognisers.sensevoice` or `workbench.runtimes.vllm.remote.wording:NanoWording`. The module is
imported when the part is used. So the descriptor of a family names modules of packages far above this one and imports
none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.core.options import conversation_options_class
from workbench.decoding.generation import GenerationOptions
from workbench.session.values import CONVERSATION, RECORDING

CONVERSE = "converse"  # the task of models that answer conversations


@dataclass(frozen=True)
class Cell:
    """A family on a runtime: the module that opens its sessions, or one sentence why the family cannot run there.

    The module has `open_session(checkpoint: Path, name: str, settings: Settings) -> Session`.
    """

    module: str | None = None
    reason: str | None = None  # `Family.cell` adds which runtimes there are instead


@dataclass(frozen=True)
class HubFiles:
    """The weights in a hub repository of the family, as patterns of paths.

    Small files (configuration, vocabulary, tokenizer) are fetched for every family; see `workbench.registry.sources`.
    """

    weights: tuple[str, ...] = ("model*.safetensors",)  # a repository must have a file for each pattern
    optional: tuple[str, ...] = ()  # fetched where the repository has them


@dataclass(frozen=True)
class GgufParts:
    """The family in GGUF files."""

    architectures: tuple[str, ...] = ()  # what `general.architecture` says in a file of the family
    converter: str | None = None  # module with `plans(directory, layout)`
    layouts: Mapping[str, str] = field(default_factory=dict)
    """By architecture, the layout of GGUF files by FunASR: see `workbench.runtimes.gguf.files.funasr_files`."""


@dataclass(frozen=True)
class VllmParts:
    """The family inside vLLM and on a vLLM server."""

    classes: Mapping[str, str] = field(default_factory=dict)  # architecture in config.json to the class that vLLM loads
    writer: str | None = None  # module with `plan(directory)`, which plans the directory that vLLM loads
    configuration: str | None = None  # class that sets vLLM's configuration where it loads one of `classes`
    wording: str | None = None  # class that is a `workbench.runtimes.vllm.remote.wording.Wording`


@dataclass(frozen=True)
class Family:
    """All that the project knows of a family. `docs/families.md` shows how to add one."""

    name: str  # as cards and checkpoints of the project name it: lower-case letters, digits, underscores
    title: str  # as people read it
    module: str  # has `recognise`, `options` and `explain`; it must not import torch or another runtime
    recognise: str  # function of `module`: does this directory hold a checkpoint of the family?
    options: str  # options class of `module`, a frozen dataclass of `workbench.core.options.option` fields
    cells: Mapping[str, Cell]  # by runtime; a runtime that is missing cannot run the family
    tasks: tuple[str, ...] = ("transcribe",)  # the tasks of a model without a card
    hub: HubFiles = HubFiles()
    gguf: GgufParts = GgufParts()
    vllm: VllmParts = VllmParts()
    ctc: str | None = None  # function (directory, weights) -> `LogitsLayout`: the meaning of its CTC head's logits
    options_of: str | None = None  # function (directory) -> options class, where not all checkpoints have all options
    speller: str | None = None  # function (directory) -> `Speller`: texts in the tokens of its CTC network
    recipe: str | None = None  # module that is a `workbench.training.demo.Recipe`
    explain: str | None = None  # lazy name of a function: see `explain_directory`
    hint: str = ""  # how users recognise its checkpoint directory, such as "FireRedASR-LLM has a model.pth.tar"
    input: str = RECORDING  # what its calls take: one of `workbench.session.values.INPUTS`
    fallback: bool = False  # asked last, since a larger model's directory may also look like one of this family
    mixed: bool = False  # without a language model: whether `dtype` may be `auto` or a 16-bit type on PyTorch
    parts: tuple[str, ...] = ()  # of its network, for those who show them: "ctc", "cif", "fsmn", "codec", "gradients"
    package: str = ""  # the package and version that it comes from; empty for a family of this project

    @property
    def reads_text(self) -> bool:
        """Whether the model reads the text that a call gets; otherwise a text is the path of a recording."""
        return self.input != RECORDING

    @property
    def has_language_model(self) -> bool:
        """Whether it contains an autoregressive language model, whose arithmetic has a type of its own."""
        return self.input == CONVERSATION or issubclass(self.options_class, GenerationOptions)

    def recognises(self, directory: Path) -> bool:
        """Whether the directory holds a checkpoint of this family."""
        return bool(getattr(import_module(self.module), self.recognise)(directory))

    def explain_directory(self, directory: Path) -> None:
        """Raises `BadInput` if the directory looks like a checkpoint of this family but is damaged or incomplete.

        It is called when no family has recognised the directory. It returns if it finds nothing wrong.
        """
        if self.explain is not None:
            load(self.explain)(directory)

    @property
    def options_class(self) -> type[Any]:
        """The dataclass of the family's options (see `workbench.core.options`)."""
        options_class: type[Any] = getattr(import_module(self.module), self.options)
        return options_class

    def options_class_of(self, checkpoint: Path | None) -> type[Any]:
        """The dataclass of the options of a checkpoint directory; the family's for other files, and for None."""
        if self.options_of is None or checkpoint is None or not checkpoint.is_dir():
            return self.options_class
        options_class: type[Any] = load(self.options_of)(checkpoint)
        return options_class

    @property
    def chat_options_class(self) -> type[Any] | None:
        """The dataclass of the options of conversations; None if the family's models answer none."""
        return conversation_options_class(self.options_class) if CONVERSE in self.tasks else None

    def cell(self, runtime: str) -> Cell:
        """Returns the family's cell for a runtime; if the family cannot run there, the reason names other runtimes."""
        cell = self.cells.get(runtime, Cell(reason=f"{self.title} has no {runtime} network"))
        if cell.module:
            return cell
        runnable = " or ".join(name for name, each in self.cells.items() if each.module)
        return Cell(reason=f"{cell.reason}; use {runnable}")


def load(part: str) -> Any:
    """Imports and returns the part with a lazy name: a module, or the object after the colon in that module.

    Raises `ImportError` or `AttributeError` if it does not exist.
    """
    module, _, name = part.partition(":")
    imported = import_module(module)
    return getattr(imported, name) if name else imported
