"""Gradients of token scores with respect to fbank features, against finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from workbench.audio.read import read
from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.core.settings import Settings
from workbench.embeddings.merge import Merged
from workbench.families.sanm.sensevoice import query_ids
from workbench.pipelines.gradients import frames_of
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.inner_stages.gradients import choice_gradients, input_gradient, keeping_inputs
from workbench.trace.recorder import Recorder

SAMPLE = assets() / "samples" / "three_seven_one.wav"
FAMILIES = ("sensevoice", "paraformer", "funasr_nano", "fireredasr")
STEP = 1e-6  # of features that vary by about 1; a larger one steps over kinks of ReLU
Network = Callable[[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """An open session, and the trace of one recording."""

    session: SpeechSession
    pipeline: Any
    samples: np.ndarray
    options: Any
    ids: list[int]
    trace: Any


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    cell = import_module(f"workbench.runtimes.pytorch.{request.param}")
    directory = assets() / f"demo-{request.param.replace('_', '-')}"
    session = cell.open_session(directory, request.param, Settings(dtype="float64"))
    trace = session.trace(SAMPLE, "tokens,frontend.fbank,gradients.fbank.*")
    pipeline = session.recogniser
    options = build_options(pipeline.options_class, {}, request.param)
    yield Case(session, pipeline, read(SAMPLE).samples, options, trace["tokens"].tolist(), trace)
    session.close()


def one_pass(case: Case, token: int) -> tuple[Any, np.ndarray, Network]:
    """Returns the front end, the features, and the function from features to the scores of a token's step."""
    pipeline = case.pipeline
    features = pipeline.features(case.samples, case.options).astype(np.float64)
    if hasattr(pipeline.network, "decode"):
        return pipeline.features, features, lambda x: pipeline.network.decode(x, None).logits[token]

    def logits(x: np.ndarray) -> np.ndarray:
        return np.concatenate([*pipeline.network.logits(x, query_ids(case.options), None)])

    frame = frames_of(logits(features), case.ids, pipeline.model.blank)[token]
    return pipeline.features, features, lambda x: logits(x)[frame]


def with_language(case: Case, token: int) -> tuple[Any, np.ndarray, Network]:
    """The same for a language model, with the prompt around the speech and the answer before the token."""
    encoder, language = case.pipeline.encoder, case.pipeline.language
    features = encoder.features(case.samples, case.options).astype(np.float64)
    prompt = encoder.prompt_ids(case.options)
    position = int(np.flatnonzero(prompt == encoder.placeholder)[0])
    prefix, suffix = (
        prompt[None, :position],
        np.concatenate([prompt[position + 1 :], case.ids[:token]])[None].astype(int),
    )

    def scores(x: np.ndarray) -> np.ndarray:
        valid = [[encoder.speech_frames(len(x), case.options)]] if hasattr(encoder, "speech_frames") else []
        speech = encoder.network.embed_audio([x], *valid, None)
        speech = speech[0] if isinstance(speech, tuple) else speech
        embeddings = torch.cat([language.embed(prefix), speech, language.embed(suffix)], dim=1)
        ones = np.ones(embeddings.shape[:2], bool)
        recorder = Recorder(lambda stage: stage == "logits")
        language.trace(Merged(embeddings, ones, np.cumsum(ones, axis=1) - 1), recorder)
        logits: np.ndarray = recorder.stages["logits"][-1]
        return logits

    return encoder.features, features, scores


def logprob(scores: np.ndarray, token: int) -> float:
    highest = float(scores.max())
    return float(scores[token] - highest - np.log(np.exp(scores - highest).sum()))


def test_fbank_gradient_equals_finite_differences(case: Case) -> None:
    """Along a random direction, and at the value with the largest gradient."""
    token = len(case.ids) - 2
    gradient = case.trace[f"gradients.fbank.{token}"]
    assert gradient.shape == case.trace["frontend.fbank"].shape and gradient.dtype == np.float64
    front, features, scores = (with_language if hasattr(case.pipeline, "language") else one_pass)(case, token)
    assert int(scores(features).argmax()) == case.ids[token]
    random = np.random.default_rng(5)
    largest_value = np.zeros(gradient.shape)
    largest_value[np.unravel_index(np.abs(gradient).argmax(), gradient.shape)] = 1.0
    for direction in (random.standard_normal(gradient.shape), largest_value):
        # The front end is linear: the change of the features is proportional to the change of the filter bank.
        feature_change = front.frontend.stack(direction)
        feature_change = feature_change.astype(np.float64) * (
            1.0 if front.frontend.cmvn is None else front.frontend.cmvn.scale
        )
        up, down = (logprob(scores(features + sign * STEP * feature_change), case.ids[token]) for sign in (1, -1))
        assert (gradient * direction).sum() == pytest.approx((up - down) / (2 * STEP), rel=2e-4)


def test_each_token_has_a_gradient_of_its_own(case: Case) -> None:
    names = [name for name in case.trace if name.startswith("gradients.")]
    assert names == [f"gradients.fbank.{index}" for index in range(len(case.ids))]
    arrays = [case.trace[name] for name in names]
    assert all(np.isfinite(array).all() and np.abs(array).max() > 0 for array in arrays)
    single = case.session.trace(SAMPLE, "gradients.fbank.1")
    assert list(single) == ["gradients.fbank.1"]
    np.testing.assert_allclose(single["gradients.fbank.1"], arrays[1], rtol=1e-9, atol=0)


def test_gradients_are_traced_only_when_the_pattern_names_them(case: Case) -> None:
    assert not any("gradients" in stage for stage in case.session.trace(SAMPLE, "*"))
    with pytest.raises(BadInput, match=r"no stage of .* matches 'gradients.fbank.99': expected gradients.fbank.0"):
        case.session.trace(SAMPLE, "tokens,gradients.fbank.99")
    with pytest.raises(BadInput, match="a trace from given stages has no gradients"):
        case.session.trace(SAMPLE, "logits,gradients.*", given=case.trace)


class DeepNetwork(nn.Module):
    """Layers that save many values for the backward pass, and read a second input as decoder layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(WideLayer() for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x * 2
        for layer in self.layers:
            x = layer(x, first, scale=0.5)
        return x


class WideLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, other: torch.Tensor, scale: float) -> torch.Tensor:
        return x + scale * self.down(torch.tanh(self.up(x * other)))  # type: ignore[no-any-return]


def count_saved_values(network: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> int:
    """Returns the number of values that a pass saves for the backward pass."""
    sizes: list[int] = []

    def record(value: torch.Tensor) -> torch.Tensor:
        sizes.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(record, lambda value: value):
        network(inputs.clone().requires_grad_())
    return sum(sizes)


def test_checkpointed_layers_store_only_their_inputs() -> None:
    network = DeepNetwork().double().requires_grad_(False)
    inputs = torch.randn(1, 50, 8, dtype=torch.float64)
    normal_count = count_saved_values(network, inputs)
    with keeping_inputs([*network.layers]):
        checkpointed_count = count_saved_values(network, inputs)
    assert checkpointed_count <= (2 * 6 + 1) * inputs.numel() < normal_count / 3
    assert not any("forward" in vars(layer) for layer in network.layers)


def test_computing_again_gives_the_same_gradients() -> None:
    network = DeepNetwork().double().requires_grad_(False)
    inputs = torch.randn(1, 5, 8, dtype=torch.float64)
    plain = inputs.clone().requires_grad_()
    scores = network(plain)[0].log_softmax(dim=-1)
    choices: Sequence[tuple[int, int]] = [(1, 3), (4, 0)]

    def arithmetic() -> Any:
        return torch.set_grad_enabled(True)

    gradients = [*choice_gradients(inputs, lambda x: network(x)[0], lambda _: choices, [*network.layers], arithmetic)]
    for (row, column), gradient in zip(choices, gradients, strict=True):
        [expected] = torch.autograd.grad(scores[row, column], plain, retain_graph=True)
        torch.testing.assert_close(gradient, expected)
    [expected] = torch.autograd.grad(network(plain).square().sum() / 2, plain)
    gradient_of_inputs = input_gradient(inputs, network, network(inputs), [*network.layers], arithmetic)
    torch.testing.assert_close(gradient_of_inputs, expected)
