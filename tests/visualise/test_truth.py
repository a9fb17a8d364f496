"""Views show what the model computes: token borders, CTC lattice, logit lens, attention, FSMN kernels and times."""

from __future__ import annotations

import numpy as np
import pytest

from tests.visualise.conftest import SceneOf
from workbench.core.errors import BadInput
from workbench.registry.sources import fetch
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict
from workbench.visualise.builders.confidence import entropy, softmax
from workbench.visualise.builders.memory import kernels
from workbench.visualise.options import ViewOptions
from workbench.visualise.run import picture_of

RUNTIMES = ("pytorch", "gguf")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cif_view_borders_equal_the_token_times_of_the_transcript(runtime: str, scene_of: SceneOf) -> None:
    scene = scene_of("demo/paraformer", runtime)
    picture = picture_of(scene, "cif")
    times = [(token.start, token.end) for segment in scene.transcript.segments for token in segment.tokens]
    assert len(times) == 3
    np.testing.assert_array_equal(picture["borders"].values, times)
    # A plain Paraformer's tokens end where the integrator fires; the last fire is of the end symbol.
    np.testing.assert_allclose(picture["fires"].values[:-1], [end for _, end in times], atol=1e-9)
    weights = picture["weights"].values
    np.testing.assert_allclose(picture["sum"].values[0], np.cumsum(weights), rtol=1e-6)
    assert picture["sum"].values[0, -1] >= len(picture["fires"].values)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_ctc_lattice_path_spells_the_transcript_with_its_times(runtime: str, scene_of: SceneOf) -> None:
    scene = scene_of("demo/sensevoice", runtime)
    picture = picture_of(scene, "ctc")
    lattice, path = picture["lattice"], picture["path"].values
    states = (path[:, 1] - 0.5).astype(int)
    assert (np.diff(states) >= 0).all() and np.diff(states).max() <= 2
    tokens = [lattice.y.ticks[state] for state in dict.fromkeys(states) if state % 2]
    assert [text for text in tokens if not text.startswith("<|")] == ["▁three", "▁seven", "▁one"]
    for token, start, end in zip(tokens[-3:], *np.array([(t.start, t.end) for t in picture.tokens]).T, strict=True):
        inside = path[[lattice.y.ticks[state] == token for state in states], 0]
        step = lattice.x.step
        assert start == pytest.approx(inside[0] - step / 2) and end == pytest.approx(inside[-1] + step / 2)
    np.testing.assert_allclose(picture["posteriors"].values.sum(axis=0), 1, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("model", ["demo/sensevoice", "demo/paraformer", "demo/funasr-nano", "demo/qwen3"])
def test_last_row_of_the_logit_lens_equals_the_logits(model: str, runtime: str, scene_of: SceneOf) -> None:
    scene = scene_of(model, runtime)
    table = picture_of(scene, "lens", ViewOptions(count=1))["lens"]
    ids = scene.stage("tokens").tolist()
    if model in ("demo/sensevoice", "demo/paraformer"):
        logits = scene.stage("logits").astype(np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        np.testing.assert_allclose(table.values[-1], 1 / powers.sum(axis=1), rtol=1e-5)
        assert table.values.shape[1] == len(logits)
    else:  # the logits of an answer are those that it was chosen by
        told = np.exp(scene.stage("tokens.logprobs")[:, 0])
        np.testing.assert_allclose(table.values[-1], told, rtol=1e-3, atol=1e-5)
    if model != "demo/sensevoice":
        last = table.labels[-len(ids) :]
        assert list(last) == [text.replace(" ", "␣") for text in scene.texts(ids)]
    assert (table.values[0] != table.values[-1]).any()


@pytest.mark.parametrize("model", ["demo/sensevoice", "demo/paraformer", "demo/fireredasr", "demo/qwen3"])
def test_rows_of_attention_and_of_rollout_sum_to_1(model: str, scene_of: SceneOf) -> None:
    scene = scene_of(model)
    heads = picture_of(scene, "attention", ViewOptions(layer=1))["attention"].values
    mean = picture_of(scene, "attention", ViewOptions(layer=1, attention="mean"))["attention"].values
    alone = picture_of(scene, "attention", ViewOptions(layer=1, head=2))["attention"].values
    rolled = picture_of(scene, "attention", ViewOptions(attention="rollout"))["rollout"].values
    np.testing.assert_allclose(heads.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(mean, heads.mean(axis=0), atol=1e-7)
    np.testing.assert_array_equal(alone, heads[2])
    np.testing.assert_allclose(rolled.sum(axis=1), 1, atol=1e-6)
    assert rolled.shape == mean.shape


def test_token_attention_is_centred_in_the_order_of_the_spoken_words(scene_of: SceneOf) -> None:
    """Digits are spoken one after another, and what their tokens look at moves on in time with them."""
    picture = picture_of(scene_of("demo/fireredasr"), "attention", ViewOptions(attention="token", token=1))
    layer = picture["all_tokens"]
    rows = [[tick.strip() for tick in layer.y.ticks].index(word) for word in ("three", "seven", "one")]
    middles = layer.x.start + (np.arange(layer.cells) + 0.5) * layer.x.step
    centres = layer.values[rows] @ middles / layer.values[rows].sum(axis=1)
    assert centres[0] < centres[1] < centres[2] < picture.seconds
    np.testing.assert_allclose(picture["token"].values, layer.values[1], atol=1e-7)
    np.testing.assert_allclose(picture["heads"].values.mean(axis=0), layer.values[1], atol=1e-6)


def test_token_attention_is_cross_attention_or_self_attention_of_its_frame(scene_of: SceneOf) -> None:
    token = ViewOptions(attention="token", layer=0)
    paraformer, sensevoice = scene_of("demo/paraformer"), scene_of("demo/sensevoice")
    crossed = paraformer.stage("decoder.layers.0.cross_attention.weights")
    found = picture_of(paraformer, "attention", token)["all_tokens"]
    np.testing.assert_allclose(found.values, crossed.mean(axis=0), atol=1e-7)
    own = sensevoice.stage("encoder.layers.0.attention.weights").mean(axis=0)
    found = picture_of(sensevoice, "attention", token)["all_tokens"]
    posteriors = sensevoice.stage("ctc.posteriors")  # the tokens of this sample are all different
    frames = [int(posteriors[:, number].argmax()) for number in sensevoice.stage("tokens")]
    np.testing.assert_allclose(found.values, own[frames], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_fsmn_kernels_are_recovered_from_input_and_output(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    value, taps = drawn.normal(size=(60, 8)), drawn.normal(size=(8, 7))
    padded = np.pad(value, ((3, 3), (0, 0)))
    output = value + np.array([[padded[row : row + 7, c] @ taps[c] for c in range(8)] for row in range(60)])
    found = kernels(value, output)
    assert found is not None
    np.testing.assert_allclose(found, taps, atol=1e-8)
    assert kernels(value[:8], output[:8]) is None, "too few rows to tell"
    assert kernels(value, drawn.normal(size=value.shape)) is None, "no filter makes noise of it"


def test_recovered_fsmn_kernels_equal_the_model_weights(scene_of: SceneOf) -> None:
    scene = scene_of("demo/sensevoice")
    found = picture_of(scene, "fsmn", ViewOptions(layer=1))["kernels"].values
    weights = read_state_dict(fetch(scene.card) / "model.pt")
    taps = weights["encoder.encoders.0.self_attn.fsmn_block.weight"][:, 0].float().numpy()
    np.testing.assert_allclose(found, taps, atol=2e-3)


def test_fsmn_view_of_a_decoder_shows_its_last_layer_with_a_memory(scene_of: SceneOf) -> None:
    scene = scene_of("demo/paraformer")
    assert "decoder.layers.2" in scene.stages("decoder.layers.*"), "a feed-forward layer comes last"
    assert picture_of(scene, "fsmn", ViewOptions(stack="decoder"))["output"].title.endswith("decoder.layers.1.fsmn")
    with pytest.raises(BadInput, match=r"the stage decoder\.layers\.2\.fsmn"):
        picture_of(scene, "fsmn", ViewOptions(stack="decoder", layer=2))


def test_entropy_is_0_for_certain_and_maximal_for_uniform_probabilities(scene_of: SceneOf) -> None:
    np.testing.assert_allclose(entropy(np.array([[1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]])), [0, 2, 1])
    np.testing.assert_allclose(softmax(np.array([[0.0, -np.inf, 0.0]])), [[0.5, 0, 0.5]])
    picture = picture_of(scene_of("demo/sensevoice"), "confidence")
    assert (picture["confidence"].values <= 1).all() and (picture["entropy"].values >= 0).all()


def test_codec_view_codes_match_the_delayed_rows(scene_of: SceneOf) -> None:
    picture = picture_of(scene_of("demo/speechlm"), "codec")
    rows, codes = picture["rows"].values, picture["codes"].values
    streams, frames = codes.shape
    assert streams == 8 and rows.shape == (8, frames + 7)
    for stream in range(streams):
        np.testing.assert_array_equal(rows[stream, stream : stream + frames], codes[stream])
    assert np.isnan(rows[1, 0]) and picture["codes"].x.unit == "seconds"


def test_nearest_tokens_of_prompt_embeddings_are_the_prompt_tokens(scene_of: SceneOf) -> None:
    scene = scene_of("demo/qwen3")
    table = picture_of(scene, "embeddings", ViewOptions(count=2))["nearest"]
    own = scene.texts(scene.stage("prompt.tokens"))
    assert table.labels[: len(own)] == own
    np.testing.assert_allclose(table.values[0], 1, atol=1e-5)


def test_attention_names_each_token_of_a_prompt_around_the_sound(scene_of: SceneOf) -> None:
    """The placeholder of the sound has an id outside the vocabulary."""
    scene = scene_of("demo/funasr-nano")
    ticks = picture_of(scene, "attention", ViewOptions(stack="llm"))["attention"].x.ticks
    prompt = scene.stage("prompt.tokens").tolist()
    [place] = [place for place, number in enumerate(prompt) if number < 0]
    before, after = scene.texts(prompt[:place]), scene.texts(prompt[place + 1 :])
    answer = scene.texts(scene.stage("tokens")[:-1])
    sound = len(ticks) - len(before) - len(after) - len(answer)
    assert ticks == (*before, *["♪"] * sound, *after, *answer) and sound > 1
    assert "<|im_start|>" in before and "<|im_end|>" in after


@pytest.mark.parametrize(
    ("model", "view", "options", "said"),
    [
        (
            "demo/sensevoice",
            "attention",
            {"layer": 30},
            "has 7 layers in encoder, but layer 30 is requested; expected 0 to 6",
        ),
        ("demo/sensevoice", "attention", {"head": 9}, "has 4 heads, but head 9 is requested; expected 0 to 3"),
        (
            "demo/sensevoice",
            "attention",
            {"stack": "llm"},
            "has no stack of layers 'llm' for this view; expected encoder",
        ),
        ("demo/paraformer", "attention", {"attention": "token", "token": 99}, "the output has 4 tokens, but token 99"),
        ("demo/paraformer", "attention", {"stack": "cross", "attention": "rollout"}, "rollout goes through the layers"),
        (
            "demo/paraformer",
            "attention",
            {"stack": "cross", "layer": 2},
            "does not attend to the sound; expected one of 0, 1",
        ),
        ("demo/qwen3", "attention", {"attention": "token"}, "was given no recording"),
        ("demo/qwen3", "quantisation", {"types": ("q99",)}, "'q99' is not a type of weights"),
    ],
)
def test_invalid_view_options_raise_one_line_error(
    model: str, view: str, options: dict[str, object], said: str, scene_of: SceneOf
) -> None:
    with pytest.raises(BadInput) as raised:
        picture_of(scene_of(model), view, ViewOptions(**options))  # type: ignore[arg-type]
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_gradient_view_defaults_to_the_first_token_that_is_not_a_tag(scene_of: SceneOf) -> None:
    assert picture_of(scene_of("demo/sensevoice"), "gradient")["gradient"].title.startswith("token 4, '▁three': ")
    assert picture_of(scene_of("demo/paraformer"), "gradient")["gradient"].title.startswith("token 0, 'three': ")


def test_gradient_view_belongs_to_the_requested_token(scene_of: SceneOf) -> None:
    scene = scene_of("demo/paraformer")
    pictures = [picture_of(scene, "gradient", ViewOptions(token=token)) for token in range(3)]
    first = pictures[0]
    assert first["gradient"].title.startswith("token 0, 'three': ")
    np.testing.assert_allclose(first["frames"].values[0] ** 2, (first["gradient"].values ** 2).sum(axis=0), rtol=1e-6)

    def share(of: int, near: int) -> float:
        """The part of a token's gradient, squared, that lies near a token."""
        token, curve = first.tokens[near], pictures[of]["frames"]
        seconds, squares = curve.x.step * np.arange(len(curve.values[0])), curve.values[0] ** 2
        return float(squares[(seconds > token.start - 0.3) & (seconds < token.end + 0.3)].sum() / squares.sum())

    assert share(1, near=1) > share(2, near=1) and share(2, near=2) > share(1, near=2)
    with pytest.raises(BadInput, match="the output has 4 tokens, but token 9 is requested; expected 0 to 3"):
        picture_of(scene, "gradient", ViewOptions(token=9))
    with pytest.raises(BadInput, match="ggml computes these models forwards only; trace gradients on pytorch"):
        picture_of(scene_of("demo/paraformer", "gguf"), "gradient")
