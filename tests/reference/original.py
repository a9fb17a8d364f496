"""The original `funasr` package as the other side of a comparison.

Its modules are imported one by one: `import funasr` itself imports every model it has, with whatever heavy packages
those find. Where the package is absent, `require()` skips the calling test and names the command that installs it.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

COMPONENTS = (
    "funasr.frontends.wav_frontend",
    "funasr.tokenizer.sentencepiece_tokenizer",
    "funasr.tokenizer.char_tokenizer",
    "funasr.models.ctc.ctc",
    "funasr.models.sanm.encoder",
    "funasr.models.sense_voice.model",
    "funasr.models.paraformer.cif_predictor",
    "funasr.models.paraformer.decoder",
    "funasr.models.paraformer.model",
    "funasr.models.bicif_paraformer.cif_predictor",
    "funasr.models.bicif_paraformer.model",
)
THREADS = 2


def require() -> None:
    """Skips the calling test where the package or one of those it needs is not installed."""
    if importlib.util.find_spec("funasr") is None:
        pytest.skip(
            "compares with the original funasr package, which is not installed here; to install it: make reference"
        )


@cache
def module(name: str) -> Any:
    """A module of the package, such as `funasr.utils.timestamp_tools`."""
    if "funasr" not in sys.modules:
        spec = importlib.util.find_spec("funasr")
        assert spec is not None and spec.submodule_search_locations is not None
        shell = types.ModuleType("funasr")
        shell.__spec__ = spec
        shell.__path__ = list(spec.submodule_search_locations)
        sys.modules["funasr"] = shell
    return importlib.import_module(name)


@dataclass
class OriginalResult:
    """The original's result for one recording, and the outputs of its parts."""

    result: dict[str, Any]  # text, and timestamps if requested
    parts: dict[str, Any] = field(default_factory=dict)  # outputs by part: encoder, predictor, decoder, ctc ...

    @property
    def encoded(self) -> np.ndarray:
        """Encoder output [frames, width]."""
        return self.parts["encoder"][0][0].numpy()


class Original:
    """A checkpoint directory opened with the package's own `AutoModel`, without dither, so that runs repeat."""

    def __init__(self, directory: Path):
        require()
        for name in COMPONENTS:  # registers the classes that a configuration names
            module(name)
        with _quiet():
            self.auto = module("funasr.auto.auto_model").AutoModel(
                model=str(directory),
                device="cpu",
                ncpu=THREADS,
                disable_update=True,
                disable_pbar=True,
                log_level="ERROR",
            )
            self.auto._reset_runtime_configs()  # from here on its parts are the ones that `generate` uses, not copies
        self.model: Any = self.auto.model
        self.frontend: Any = self.auto.kwargs["frontend"]
        self.frontend.dither = 0.0
        self.tokenizer: Any = self.auto.kwargs["tokenizer"]
        self._cmvn = self.frontend.cmvn

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Returns the front end's features [frames, 560] of samples [n]."""
        frames, _ = self.frontend(torch.from_numpy(samples)[None], torch.tensor([len(samples)]))
        return frames[0].numpy()

    def transcribe(
        self, samples: np.ndarray, parts: Sequence[str] = ("encoder",), cmvn: bool = True, **options: Any
    ) -> OriginalResult:
        """Runs `generate` and saves the outputs of the named parts of the model (dotted attribute paths)."""
        outputs: dict[str, Any] = {}

        def save(name: str) -> Any:
            return lambda _module, _inputs, output: outputs.__setitem__(name, _copied(output))

        hooks = [self.model.get_submodule(name).register_forward_hook(save(name)) for name in parts]
        self.frontend.cmvn = self._cmvn if cmvn else None
        try:
            with _quiet():
                results = self.auto.generate(input=samples, **options)
        finally:
            self.frontend.cmvn = self._cmvn
            for hook in hooks:
                hook.remove()
        return OriginalResult(results[0] if results else {}, outputs)

    def close(self) -> None:
        """Drops the weights."""
        del self.auto, self.model


def _copied(output: Any) -> Any:
    """The output with every tensor copied: the package goes on to change some of them in place."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    return tuple(_copied(part) for part in output) if isinstance(output, (tuple, list)) else output


@contextmanager
def torch_threads(count: int = THREADS) -> Iterator[None]:
    """Sets the number of PyTorch's threads for the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Restores the process's logging and thread settings after the package has changed them."""
    level, handlers, threads = logging.root.level, logging.root.handlers[:], torch.get_num_threads()
    try:
        yield
    finally:
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
        torch.set_num_threads(threads)
