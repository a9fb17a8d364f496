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
from workbench.families.sensevoice import query_ids
from workbench.pipelines.gradients import frames_of
from workbench.pipelines.speech_session import SpeechSession
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.gradients import choice_gradients, input_gradient, keeping_inputs
from workbench.trace.recorder import Recorder

SAMPLE = assets() / "samples" / "three_seven_one.wav"
FAMILIES = ("sensevoice", "paraformer", "funasr_nano", "fireredasr")
STEP = 1e-6  # of features that vary by about 1; a larger one steps over kinks of ReLU
Network = Callable[[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """An open session, and what a trace says of one recording."""

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
    """Returns the front end, the features, and the function from features to the scores among which a token is one."""
    pipeline = case.pipeline
    features = pipeline.features(case.samples, case.options).astype(np.float64)
    if hasattr(pipeline.network, "decode"):
        return pipeline.features, features, lambda x: pipeline.network.decode(x, None).logits[token]

    def logits(x: np.ndarray) -> np.ndarray:
        return np.concatenate([*pipeline.network.logits(x, query_ids(case.options), None)])

    frame = frames_of(logits(features), case.ids, pipeline.model.blank)[token]
    return pipeline.features, features, lambda x: logits(x)[frame]


def with_language(case: Case, token: int) -> tuple[Any, np.ndarray, Network]:
    """The same for a language model: it reads the prompt around the sound, and the answer before the token."""
    encoder, language = case.pipeline.encoder, case.pipeline.language
    features = encoder.features(case.samples, case.options).astype(np.float64)
    prompt = encoder.prompt_ids(case.options)
    place = int(np.flatnonzero(prompt == encoder.placeholder)[0])
    before, behind = prompt[None, :place], np.concatenate([prompt[place + 1 :], case.ids[:token]])[None].astype(int)

    def scores(x: np.ndarray) -> np.ndarray:
        valid = [[encoder.speech_frames(len(x), case.options)]] if hasattr(encoder, "speech_frames") else []
        speech = encoder.network.embed_audio([x], *valid, None)
        speech = speech[0] if isinstance(speech, tuple) else speech
        joined = torch.cat([language.embed(before), speech, language.embed(behind)], dim=1)
        ones = np.ones(joined.shape[:2], bool)
        recorder = Recorder(lambda stage: stage == "logits")
        language.trace(Merged(joined, ones, np.cumsum(ones, axis=1) - 1), recorder)
        found: np.ndarray = recorder.stages["logits"][-1]
        return found

    return encoder.features, features, scores


def logprob(scores: np.ndarray, token: int) -> float:
    highest = float(scores.max())
    return float(scores[token] - highest - np.log(np.exp(scores - highest).sum()))


def test_fbank_gradient_equals_finite_differences(case: Case) -> None:
    """Along a direction of filter banks, and at the value that matters most."""
    token = len(case.ids) - 2
    found = case.trace[f"gradients.fbank.{token}"]
    assert found.shape == case.trace["frontend.fbank"].shape and found.dtype == np.float64
    front, features, scores = (with_language if hasattr(case.pipeline, "language") else one_pass)(case, token)
    assert int(scores(features).argmax()) == case.ids[token]
    random = np.random.default_rng(5)
    most = np.zeros(found.shape)
    most[np.unravel_index(np.abs(found).argmax(), found.shape)] = 1.0
    for direction in (random.standard_normal(found.shape), most):
        # The front end is linear: what a change of the filter bank does to the features does not depend on its size.
        moved = front.frontend.stack(direction)
        moved = moved.astype(np.float64) * (1.0 if front.frontend.cmvn is None else front.frontend.cmvn.scale)
        up, down = (logprob(scores(features + sign * STEP * moved), case.ids[token]) for sign in (1, -1))
        assert (found * direction).sum() == pytest.approx((up - down) / (2 * STEP), rel=2e-4)


def test_each_token_has_a_gradient_of_its_own(case: Case) -> None:
    names = [name for name in case.trace if name.startswith("gradients.")]
    assert names == [f"gradients.fbank.{place}" for place in range(len(case.ids))]
    arrays = [case.trace[name] for name in names]
    assert all(np.isfinite(array).all() and np.abs(array).max() > 0 for array in arrays)
    alone = case.session.trace(SAMPLE, "gradients.fbank.1")
    assert list(alone) == ["gradients.fbank.1"]
    np.testing.assert_allclose(alone["gradients.fbank.1"], arrays[1], rtol=1e-9, atol=0)


def test_gradients_are_traced_only_when_the_pattern_names_them(case: Case) -> None:
    assert not any("gradients" in stage for stage in case.session.trace(SAMPLE, "*"))
    with pytest.raises(BadInput, match=r"no stage of .* matches 'gradients.fbank.99': expected gradients.fbank.0"):
        case.session.trace(SAMPLE, "tokens,gradients.fbank.99")
    with pytest.raises(BadInput, match="a trace from given stages has no gradients"):
        case.session.trace(SAMPLE, "logits,gradients.*", given=case.trace)


class Deep(nn.Module):
    """Layers that each keep much for the way back, and read a second input as a decoder's do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Widening() for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x * 2
        for layer in self.layers:
            x = layer(x, first, scale=0.5)
        return x


class Widening(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, other: torch.Tensor, scale: float) -> torch.Tensor:
        return x + scale * self.down(torch.tanh(self.up(x * other)))  # type: ignore[no-any-return]


def kept(network: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> int:
    """Returns how many values a pass keeps for the way back."""
    sizes: list[int] = []

    def note(value: torch.Tensor) -> torch.Tensor:
        sizes.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        network(inputs.clone().requires_grad_())
    return sum(sizes)


def test_checkpointed_layers_store_only_their_inputs() -> None:
    network = Deep().double().requires_grad_(False)
    inputs = torch.randn(1, 50, 8, dtype=torch.float64)
    freely = kept(network, inputs)
    with keeping_inputs([*network.layers]):
        sparely = kept(network, inputs)
    assert sparely <= (2 * 6 + 1) * inputs.numel() < freely / 3
    assert not any("forward" in vars(layer) for layer in network.layers)


def test_computing_again_gives_the_same_gradients() -> None:
    network = Deep().double().requires_grad_(False)
    inputs = torch.randn(1, 5, 8, dtype=torch.float64)
    plain = inputs.clone().requires_grad_()
    scores = network(plain)[0].log_softmax(dim=-1)
    choices: Sequence[tuple[int, int]] = [(1, 3), (4, 0)]

    def arithmetic() -> Any:
        return torch.set_grad_enabled(True)

    found = [*choice_gradients(inputs, lambda x: network(x)[0], lambda _: choices, [*network.layers], arithmetic)]
    for (row, chosen), gradient in zip(choices, found, strict=True):
        [expected] = torch.autograd.grad(scores[row, chosen], plain, retain_graph=True)
        torch.testing.assert_close(gradient, expected)
    [expected] = torch.autograd.grad(network(plain).square().sum() / 2, plain)
    back = input_gradient(inputs, network, network(inputs), [*network.layers], arithmetic)
    torch.testing.assert_close(back, expected)
