"""The ten faults of `tests.support.faults`, planted on ggml: in a converted copy of the checkpoint, or in the code.

The candidate is then another runtime altogether, as in a real port. What a file can have wrong is planted in a file:
weights, statistics, a key. The others, which are errors of a program, are planted in the modules that build the graph,
or in the front end that all runtimes share.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from tests.support.faults import EPS, TIMES, Planted, behind_norm, exchanged, norms, sinusoid, stacked, twice
from tests.support.faults_judged import DIRECTORIES
from workbench.audio.cmvn import Cmvn, read_am_mvn
from workbench.conversion.checkpoint import convert, plans_of
from workbench.core.settings import Settings
from workbench.registry.sources import assets
from workbench.trace.trace import Trace


class Port:
    """A demo model on its way to ggml, which a planter makes wrong; all is as it was when the `with` block ends.

    Args:
        family: as its module is called; faults are planted in sensevoice and funasr_nano.
        folder: for a copy of the checkpoint and for the converted file.
        reference: a trace of the intact model.
        seed: of what is drawn.
        quantization: of the file.
    """

    def __init__(self, family: str, folder: Path, reference: Trace, seed: int = 0, quantization: str = "f32"):
        self.speaks = family == "funasr_nano"  # it has a language model
        self.reference, self.quantization = reference, quantization
        self._family, self._folder, self._draw = family, folder, np.random.default_rng(seed)
        self._intact = assets() / DIRECTORIES.get(family, f"demo-{family.replace('_', '-')}")
        self._undo = contextlib.ExitStack()

    def one_of(self, count: int) -> int:
        """Which of so many."""
        return int(self._draw.integers(count))

    @property
    def module(self) -> Any:
        """The family's, on ggml."""
        return import_module(f"workbench.runtimes.gguf.{self._family}")

    @property
    def encoder(self) -> str:
        """What the names of the encoder's tensors begin with."""
        return "audio_encoder." if self.speaks else "encoder."

    def blocks(self, tensors: Mapping[str, Any]) -> list[str]:
        """What the names of each block's tensors begin with, in the order of the blocks."""
        stacks = [f"{self.encoder}{stack}." for stack in ("encoders0", "encoders", "tp_encoders")]
        norms_of = [[name for name in tensors if name.startswith(s) and name.endswith("norm1.weight")] for s in stacks]
        return [f"{s}{n}." for s, names in zip(stacks, norms_of, strict=True) for n in range(len(names))]

    @property
    def directory(self) -> Path:
        """A copy of the checkpoint, to be altered."""
        copy = self._folder / "checkpoint"
        if not copy.exists():
            shutil.copytree(self._intact, copy)
        return copy

    def weights(self) -> dict[str, torch.Tensor]:
        """The checkpoint's."""
        found: dict[str, torch.Tensor] = torch.load(self._intact / "model.pt", map_location="cpu", weights_only=True)
        return found

    def write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Puts weights into the copy in place of those of the same names."""
        torch.save({**self.weights(), **tensors}, self.directory / "model.pt")

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Gives a module or a class another function."""
        self._undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """The converted model, opened."""
        copy = self._folder / "checkpoint"
        source = copy if copy.exists() else self._intact
        file = self._folder / f"{self._family}.gguf"
        convert(plans_of(source, self._family), self.quantization, file)
        session = self.module.open_session(file, "port", Settings(threads=1))
        try:
            yield session
        finally:
            session.close()

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


Planter = Callable[[Port], Planted]


def norm_eps(port: Port) -> Planted:
    """In the code: one norm of the graph is given the epsilon 1e-3."""
    from workbench.runtimes.gguf.graphs.graph import Graph

    places, blocks = norms(port.reference), port.blocks(port.weights())
    number, name = places[port.one_of(len(places))]
    right, place = Graph.layer_norm, f"{blocks[number]}{name}."
    port.set(Graph, "layer_norm", lambda g, x, scope, eps: right(g, x, scope, EPS if scope.prefix == place else eps))
    return behind_norm(number, name)


def fsmn_tap(port: Port) -> Planted:
    """In the file: one tap of a block's memory is zero."""
    tensors = port.weights()
    blocks = port.blocks(tensors)
    number = port.one_of(len(blocks))
    name = f"{blocks[number]}self_attn.fsmn_block.weight"
    weight = tensors[name].clone()
    weight[:, :, port.one_of(weight.shape[2])] = 0
    port.write({name: weight})
    return Planted(f"encoder.layers.{number}.fsmn")


def positions_from_zero(port: Port) -> Planted:
    """In the code: positions are counted from 0, not from 1."""
    port.set(_sanm(), "sinusoid", lambda frames, depth: sinusoid(frames, depth, first=0).numpy())
    return Planted("encoder.input")


def no_scale(port: Port) -> Planted:
    """In the code: features are not multiplied by the square root of the width."""
    right = port.module.encoder_input
    port.set(port.module, "encoder_input", lambda features, config: right(features, replace(config, output_size=1)))
    return Planted("encoder.input")


def cmvn_twice(port: Port) -> Planted:
    """In the file: statistics that normalise twice; of Fun-ASR-Nano, which does not normalise, the recording's own."""
    file = port.directory / "am.mvn"
    lfr = port.reference["frontend.lfr"]
    once = Cmvn(-lfr.mean(axis=0), 1 / lfr.std(axis=0).clip(0.1))
    cmvn = once if port.speaks else twice(read_am_mvn(file))
    parts = (("AddShift", cmvn.shift), ("Rescale", cmvn.scale))
    texts = [f"<{tag}> {len(v)} {len(v)} <LearnRateCoef> 0 [ {' '.join(map(str, v))} ]" for tag, v in parts]
    file.write_text("<Nnet>\n" + "\n".join(texts) + "\n</Nnet>\n")
    if port.speaks:
        config = yaml.safe_load((port.directory / "config.yaml").read_text(encoding="utf-8"))
        config["frontend_conf"]["cmvn_file"] = file.name
        (port.directory / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return Planted("frontend.features")


def transposed(port: Port) -> Planted:
    """In the file: a square weight of the encoder's, the adaptor's or the language model's attention."""
    tensors = port.weights()
    places = [(f"{b}self_attn.linear_out", f"encoder.layers.{n}.attention") for n, b in enumerate(port.blocks(tensors))]
    if port.speaks:
        places += [(f"audio_adaptor.blocks.{n}.self_attn.linear_v", f"adaptor.layers.{n}") for n in range(2)]
        places += [(f"llm.model.layers.{n}.self_attn.o_proj", f"llm.layers.{n}") for n in range(4)]
    name, stage = places[port.one_of(len(places))]
    port.write({f"{name}.weight": tensors[f"{name}.weight"].T.contiguous()})
    return Planted(stage)


def f16_overflow(port: Port) -> Planted:
    """In the file: in float16, weights around a ReLU that are scaled against each other, which changes nothing in
    float32. ggml rounds what a matrix in float16 multiplies to float16 as well."""
    tensors = port.weights()
    blocks = port.blocks(tensors)
    number = port.one_of(len(blocks))
    wide, narrow = (f"{blocks[number]}feed_forward.w_{n}" for n in (1, 2))
    if port.speaks:
        wide, narrow = "audio_adaptor.linear1", "audio_adaptor.linear2"
    scaled = {f"{wide}.{part}": TIMES * tensors[f"{wide}.{part}"] for part in ("weight", "bias")}
    port.write({**scaled, f"{narrow}.weight": tensors[f"{narrow}.weight"] / TIMES})
    port.quantization = "f16"
    return Planted("adaptor.layers.0" if port.speaks else f"encoder.layers.{number}")


def rope_base(port: Port) -> Planted:
    """In a key of the file: the base 1e4 in place of 1e6; without rotary positions, in the code, as in `faults`."""
    if not port.speaks:
        port.set(_sanm(), "sinusoid", lambda frames, depth: sinusoid(frames, depth, base=1e3).numpy())
        return Planted("encoder.input")
    file = port.directory / "Qwen3-demo" / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    assert config["rope_parameters"]["rope_theta"] == 1e6
    config["rope_parameters"]["rope_theta"] = 1e4
    file.write_text(json.dumps(config), encoding="utf-8")
    return Planted("llm.layers.0", ("llm.layers.*",))


def queries_swapped(port: Port) -> Planted:
    """In the file: two rows of the table of query tokens, or of the table of the language model, for two that stand in
    the prompt. Whatever else the table is for is changed with it: here, logits."""
    tensors = port.weights()
    name = "llm.model.embed_tokens.weight" if port.speaks else "embed.weight"
    rows = (1, 2)
    if port.speaks:
        ids = sorted(set(port.reference["prompt.tokens"].tolist()) & set(range(len(tensors[name]))))
        first = port.one_of(len(ids) - 1)
        rows = ids[first], ids[first + 1]
    table = tensors[name].clone()
    table[list(rows)] = table[list(exchanged(rows, 0))]
    port.write({name: table})
    return Planted("llm.embeddings", ("logits",)) if port.speaks else Planted("encoder.input")


def lfr_padding(port: Port) -> Planted:
    """In the code: one copy of the first frame too few, or too many, before the stacked frames."""
    from workbench.audio import frontend

    off = (-1, 1)[port.one_of(2)]
    port.set(frontend, "stack_frames", lambda features, m, n: stacked(features, m, n, (m - 1) // 2 + off))
    return Planted("frontend.lfr")


FAULTS: Mapping[str, Planter] = {
    "layer-norm eps 1e-5 to 1e-3": norm_eps,
    "one FSMN tap zeroed": fsmn_tap,
    "positions from 0 instead of 1": positions_from_zero,
    "missing sqrt(d) scale": no_scale,
    "CMVN applied twice": cmvn_twice,
    "a transposed weight": transposed,
    "f16 overflow in the adaptor": f16_overflow,
    "RoPE base wrong": rope_base,
    "query tokens swapped": queries_swapped,
    "LFR padding off by one": lfr_padding,
}


def _sanm() -> Any:
    from workbench.runtimes.gguf.networks import sanm

    return sanm
