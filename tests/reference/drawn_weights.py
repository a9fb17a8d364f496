"""Random weights that make a network do something on speech: frames differ, tokens come and go, CIF counts a few.

Seeded, and calibrated by running the workbench's own network over a synthetic voice. This file writes nothing.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.families.sanm.paraformer import ParaformerModel
from workbench.families.sanm.sensevoice import QUERY_FRAMES, SenseVoiceModel, SenseVoiceOptions, query_ids
from workbench.runtimes.pytorch.networks.seaco import SeacoBranch
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork

SAMPLE_RATE = 16000


@torch.no_grad()
def fill(network: nn.Module, seed: int) -> None:
    """Draws every parameter so that none is neutral and frames stay different through many layers.

    Random layers would add the same vector to every frame: what a ReLU has on average, and the mean over all frames
    that a flat attention is. So the second feed-forward matrix ignores the average, and queries and keys are larger.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            parameter.normal_(0.0, 0.1, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter += 1.0
        elif name == "embed.weight":
            parameter.normal_(0.0, 1.0, generator=generator)
        else:
            fan_in = parameter[0].numel()
            parameter.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=generator)
        if name.endswith("w_2.weight"):
            parameter -= parameter.mean(dim=1, keepdim=True)
        elif name.endswith("linear_q_k_v.weight"):
            parameter[: len(parameter) * 2 // 3] *= 2.0
        elif name.endswith("linear_q.weight"):
            parameter *= 3.0


def synthetic_voice(seconds: float = 6.0, seed: int = 0) -> np.ndarray:
    """Float32 samples [n] that vary as speech does: voiced and unvoiced syllables of changing pitch and colour."""
    generator = np.random.default_rng(seed)
    count = int(seconds * SAMPLE_RATE)
    samples = 1e-3 * generator.standard_normal(count)
    at = 0
    while at < count:
        length = int(generator.uniform(0.06, 0.25) * SAMPLE_RATE)
        time = np.arange(min(length, count - at)) / SAMPLE_RATE
        envelope = np.sin(np.pi * time * SAMPLE_RATE / length) ** 0.5
        if generator.random() < 0.7:
            pitch, colours = generator.uniform(90, 240), generator.uniform(300, 3500, 3)
            harmonics = np.arange(1, 25)
            gains = sum(np.exp(-(((harmonics * pitch - colour) / 250) ** 2)) for colour in colours) / harmonics**0.5
            sound = (gains[:, None] * np.sin(2 * np.pi * pitch * harmonics[:, None] * time)).sum(axis=0)
        else:
            sound = np.diff(generator.standard_normal(len(time) + 1))
        samples[at : at + len(time)] += generator.uniform(0.02, 0.2) * envelope * sound
        at += length + int(generator.exponential(0.04) * SAMPLE_RATE)
    return np.clip(0.3 * samples, -1, 1).astype(np.float32)


def _voice_features(model: SenseVoiceModel | ParaformerModel) -> Tensor:
    """Features [3, frames, 560] of voices at three levels: recordings differ in theirs."""
    frontend = Frontend(model.frontend, read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
    voices = [level * synthetic_voice(4.0, seed) for seed, level in enumerate((0.1, 0.4, 1.6))]
    return torch.from_numpy(np.stack([frontend(voice).features for voice in voices]))


class _Keep:
    """A tap that keeps the stages by name."""

    def __init__(self) -> None:
        self.stages: dict[str, Tensor] = {}

    def __call__(self, stage: str, value: Tensor) -> Tensor:
        self.stages[stage] = value
        return value


@torch.no_grad()
def calibrate_sensevoice(network: SenseVoiceNetwork, model: SenseVoiceModel) -> None:
    """Makes the query frames emit their tags, and blank win in part of the other frames."""
    features = _voice_features(model)
    queries = torch.tensor([query_ids(SenseVoiceOptions())]).expand(len(features), -1)
    keep = _Keep()
    network(features, queries, tap=keep)
    encoded = keep.stages["encoder.output"]
    speech = encoded[:, QUERY_FRAMES:].flatten(0, 1)
    head = network.ctc.ctc_lo
    _centre(head, speech)
    # The query frames emit the tags of the published model: language, emotion, event, text normalisation. The
    # linear discriminant against speech keeps these tags rare elsewhere.
    centre = speech.mean(dim=0)
    spread = torch.cov(speech.T)
    spread += 0.3 * spread.diagonal().mean() * torch.eye(len(centre))
    for frame, tag in enumerate(("<|zh|>", "<|NEUTRAL|>", "<|Speech|>", "<|woitn|>")):
        distance = encoded[:, frame].mean(dim=0) - centre
        direction = torch.linalg.solve(spread, distance)
        number = model.vocabulary.ids[tag]
        head.weight[number] = 9.0 * direction / (direction @ distance)
        head.bias[number] = -(head.weight[number] @ centre)
    head.weight[0] = 2.0 * _lively_direction(encoded[:, QUERY_FRAMES:])
    head.bias[0] = 0.0
    logits = network.ctc(speech)
    head.bias[0] = (logits[:, 1:].max(dim=1).values - logits[:, 0]).quantile(0.4)  # blank wins in 40 % of the frames


@torch.no_grad()
def calibrate_paraformer(network: ParaformerNetwork, model: ParaformerModel) -> None:
    """Makes CIF count about one token in five frames, and prevents one token from winning everywhere."""
    features = _voice_features(model)
    predictor = network.predictor
    encoded = network.encoder(features)
    local = predictor._local(encoded)
    _spread(predictor.cif_output, local, mean=-1.7, deviation=0.8)  # about 0.2 per frame of 60 ms
    if model.predictor.upsample:
        source = local if model.predictor.upsample_after_conv else encoded
        fine = predictor.upsample_cnn(source.transpose(1, 2)).transpose(1, 2)
        if predictor.blstm is not None:
            fine = predictor.blstm(fine)[0]
        _spread(predictor.cif_output2, fine, mean=-1.0, deviation=1.5)
    keep = _Keep()
    network(features, tap=keep)
    _centre(network.decoder.output_layer, keep.stages["decoder.output"].flatten(0, 1))


@torch.no_grad()
def calibrate_branch(branch: SeacoBranch, network: ParaformerNetwork, model: ParaformerModel) -> None:
    """Makes the hotword branch name no hotword for about half of the tokens, and varied ones for the others."""
    keep = _Keep()
    network(_voice_features(model), tap=keep)
    embeddings, hidden = keep.stages["predictor.embeddings"], keep.stages["decoder.output"]
    vectors = branch.vectors(((3, 4), (5,), (6, 7, 8), (1,)))
    passes = [branch.decode(vectors, x[row], "it") for x in (embeddings, hidden) for row in range(len(x))]
    rows = len(embeddings)
    inputs = torch.cat([passes[row] + passes[rows + row] for row in range(rows)])
    layer, none = branch.hotword_output_layer, branch.no_bias
    _centre(layer, inputs)
    logits = layer(inputs)
    others = torch.cat([logits[:, :none], logits[:, none + 1 :]], dim=1).amax(dim=1)
    layer.bias[none] += (others - logits[:, none]).median()


def _centre(layer: nn.Linear, inputs: Tensor) -> None:
    """Sets the bias so that no output is favoured by what all inputs have in common."""
    layer.bias -= (inputs @ layer.weight.T + layer.bias).mean(dim=0)


def _spread(layer: nn.Linear, inputs: Tensor, mean: float, deviation: float) -> None:
    """Makes a layer of one output follow the inputs [rows, n, width], with this mean and deviation over them."""
    layer.weight[0] = deviation * _lively_direction(inputs)
    layer.bias.fill_(mean - float((inputs @ layer.weight.T).mean()))


def _lively_direction(inputs: Tensor) -> Tensor:
    """Weights [width] along which inputs [rows, n, width] change most from frame to frame, scaled to a deviation of 1.

    What changes quickly depends least on the recording, so what is calibrated on one voice holds for another.
    """
    changes = (inputs[:, 1:] - inputs[:, :-1]).flatten(0, 1)
    direction = torch.linalg.svd(changes, full_matrices=False).Vh[0]
    direction = direction * direction[direction.abs().argmax()].sign()
    return direction / (inputs @ direction).std()
