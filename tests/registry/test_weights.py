"""Models that are GGUF files, and quantisations of checkpoints, through the registry."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.support.processes import FAKE_CHILD, gone
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.artifacts.gguf_files import converted
from workbench.core.errors import BadInput, Cancelled, Unavailable
from workbench.core.packages import CONVERSION
from workbench.formats.quantization import TYPES
from workbench.isolation import serial
from workbench.registry.cards import Card
from workbench.registry.registry import Registry

EAR = "funasr-sensevoice-encoder"


def put_gguf(path: Path, architecture: str = "sensevoice-small", quantization: str = "F16") -> Path:
    """A GGUF file with a name and one matrix."""
    kind = gguf.GGMLQuantizationType[quantization]
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_tensor("matrix", gguf.quants.quantize(np.ones((32, 64), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of `tests.support.fake_worker`, which start in a moment and read no file."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)


@pytest.fixture
def add_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Adds cards to the user's own file."""
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    return tmp_path / "models.toml"


# Files.


def test_gguf_file_opens_as_a_model_on_gguf(
    registry: Registry, fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_gguf(tmp_path / "mine-f16.gguf")
    monkeypatch.chdir(tmp_path)
    for name in ("mine-f16.gguf", Path("mine-f16.gguf"), str(tmp_path / "mine-f16.gguf")):
        card = registry.card(name)
        assert (card.id, card.name, card.family) == (str(name), "mine-f16", "sensevoice")
        assert card.source == {"gguf": str(tmp_path / "mine-f16.gguf")}
    assert registry.availability(card, "gguf").ready
    [weights] = registry.weights(card, "gguf")
    assert (weights.quantization, weights.converted, weights.default) == ("f16", True, True)
    assert weights.nbytes == (tmp_path / "mine-f16.gguf").stat().st_size
    with registry.open("mine-f16.gguf") as session:
        assert (session.runtime, session.quantization, session.weight_bytes) == ("gguf", "f16", weights.nbytes)
        assert session.transcribe("x").quantization == "f16"
        assert registry.open("mine-f16.gguf", "gguf", quantization="f16").pid == session.pid


def test_gguf_file_is_refused_on_other_runtimes(registry: Registry, tmp_path: Path) -> None:
    path = put_gguf(tmp_path / "a.gguf")
    sentence = "a.gguf is a GGUF file, which runs on gguf; pytorch needs the checkpoint that it was made from"
    assert registry.availability(registry.card(path), "pytorch").reason == sentence
    with pytest.raises(Unavailable, match=rf"cannot run on pytorch: {sentence}$"):
        registry.open(path, "pytorch")
    assert registry.weights(registry.card(path), "pytorch") == ()


def test_linked_gguf_file_keeps_the_name_of_the_link(registry: Registry, tmp_path: Path) -> None:
    put_gguf(tmp_path / "blob")
    (tmp_path / "model.gguf").symlink_to("blob")
    assert registry.card(tmp_path / "model.gguf").source == {"gguf": str(tmp_path / "model.gguf")}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"this is no model", r"^a\.gguf is a file, but not in GGUF format; expected a model id, "),
        (b"", r"^a\.gguf is a file, but not in GGUF format; expected a model id, "),
        (b"GGUF\x03\0\0\0", r"^a\.gguf is damaged or cut short: "),
    ],
)
def test_invalid_gguf_file_raises_one_line_error(
    registry: Registry, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(BadInput, match=sentence):
        registry.open(tmp_path / "a.gguf")


def test_unknown_gguf_architecture_raises_one_line_error(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^a\.gguf is of architecture 'bert'; expected one of sensevoice-small, "):
        registry.open(put_gguf(tmp_path / "a.gguf", "bert"))


def test_user_card_may_name_a_gguf_file(registry: Registry, fake: None, add_card: Path) -> None:
    put_gguf(add_card.parent / "a.gguf", quantization="Q8_0")
    card = '[[model]]\nid = "{0}"\nfamily = "{1}"\nsource = {{ gguf = "{2}.gguf" }}\n'
    add_card.write_text(
        card.format("mine", "sensevoice", "a")
        + card.format("other", "paraformer", "a")
        + card.format("gone", "sensevoice", "gone")
    )
    with registry.open("mine") as session:
        assert (session.runtime, session.quantization) == ("gguf", "q8_0")
    with pytest.raises(BadInput, match=r"^other: its card names the family paraformer, but a\.gguf holds sensevoice$"):
        registry.open("other")
    state = registry.availability(registry.card("gone"), "gguf")
    assert not state.ready and state.reason == f"its GGUF file {add_card.parent / 'gone.gguf'} is missing"
    assert registry.weights(registry.card("gone"), "gguf") == ()
    (add_card.parent / "a.gguf").write_bytes(b"GGUF")
    assert registry.weights(registry.card("mine"), "gguf") == (), "the file is damaged, which `open` reports"


def test_language_gguf_file_is_named_in_the_card_or_found_in_the_folder(registry: Registry, add_card: Path) -> None:
    """Resolved without a session, which would need full networks."""
    from workbench.core.settings import Settings
    from workbench.registry.weights import gguf_file

    folder = add_card.parent
    ear = put_gguf(folder / "encoder.gguf", EAR)
    first, second = (put_gguf(folder / f"{name}.gguf", "qwen3", "Q8_0") for name in ("one", "two"))

    def language(card: Card) -> Path | None:
        path, settings = gguf_file(card, Path(card.place), Settings())
        assert path == Path(card.place) and settings.quantization == ("f16+q8_0" if settings.language_file else "q8_0")
        return settings.language_file

    card = '[[model]]\nid = "{0}"\nfamily = "{1}"\nsource = {{ gguf = "{2}", language = "two.gguf" }}\n'
    add_card.write_text(
        card.format("pair", "funasr_nano", "encoder.gguf") + card.format("odd", "causal_lm", "one.gguf")
    )
    assert language(registry.card("pair")) == second
    [weights] = registry.weights(registry.card("pair"), "gguf")
    assert weights.nbytes == ear.stat().st_size + second.stat().st_size
    with pytest.raises(BadInput, match=r"^odd: its card names the language file two\.gguf, but one\.gguf needs none$"):
        language(registry.card("odd"))
    with pytest.raises(BadInput, match=r"^the folder of encoder\.gguf has several language models \(one\.gguf"):
        language(registry.card(ear))
    second.unlink()
    assert language(registry.card(ear)) == first
    assert language(registry.card(first)) is None
    first.unlink()
    with pytest.raises(BadInput, match=r"^encoder\.gguf holds only the audio encoder of Fun-ASR-Nano; "):
        language(registry.card(ear))


# Settings.


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"quantization": "q3"}, f"^quantization is 'q3'; expected one of auto, {', '.join(TYPES)}$"),
        ({"kv_cache": "q4_0"}, r"^kv_cache is 'q4_0'; expected one of f32, f16, q8_0$"),
        ({"kv_cache": "f16"}, r"^kv_cache is f16, and .*/tiny has no language model that it would apply to; expected"),
        (
            {"dtype": "float16"},
            r"^dtype is float16, and gguf has no such setting; leave it out, or choose pytorch or vllm",
        ),
        ({"device": "cuda"}, r"^device is cuda, and gguf has no such setting; "),
        (
            {"runtime": "pytorch", "quantization": "q8_0"},
            r"^quantization is q8_0, and pytorch has no such setting; leave it out, or choose gguf$",
        ),
        ({"runtime": "pytorch", "kv_cache": "f16"}, r"^kv_cache is f16, and pytorch has no such setting; "),
    ],
)
def test_inapplicable_setting_is_refused_before_fetching(
    registry: Registry, tmp_path: Path, settings: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.registry.resolve.fetch", lambda *_: pytest.fail("the checkpoint was fetched"))
    with pytest.raises(BadInput, match=sentence):
        registry.open(tiny_sensevoice(tmp_path / "tiny"), **{"runtime": "gguf", **settings})  # type: ignore[arg-type]


def test_quantisation_different_from_the_gguf_file_is_refused(registry: Registry, tmp_path: Path) -> None:
    path = put_gguf(tmp_path / "a.gguf", quantization="Q4_0")
    sentence = r"^quantization is 'q8_0', but the weights of a\.gguf are q4_0; expected auto or q4_0$"
    with pytest.raises(BadInput, match=sentence):
        registry.open(path, quantization="q8_0")


# Checkpoints.


def test_a_checkpoint_is_converted_once_and_runs_in_several_quantisations(registry: Registry, tmp_path: Path) -> None:
    checkpoint = tiny_sensevoice(tmp_path / "tiny")
    card = registry.card(checkpoint)
    assert [each.quantization for each in registry.weights(card, "gguf")] == list(TYPES)
    assert [each.quantization for each in registry.weights(card, "gguf") if each.default] == ["f32"]
    activities: list[str] = []
    with registry.open(checkpoint) as session:
        expected = session.transcribe(noise(2.0))
        assert (expected.runtime, expected.quantization) == ("pytorch", None)
    exact = registry.open(
        checkpoint, "gguf", threads=1, on_progress=lambda share, activity: activities.append(activity)
    )
    assert activities and exact.quantization == "f32"
    small = registry.open(checkpoint, "gguf", threads=1, quantization="q8_0")
    sizes = {each.quantization: each.nbytes for each in registry.weights(card, "gguf") if each.converted}
    assert sizes == {"f32": exact.weight_bytes, "q8_0": small.weight_bytes}
    for session, name in ((exact, "f32"), (small, "q8_0")):
        transcript = session.transcribe(noise(2.0))
        assert (transcript.runtime, transcript.quantization, transcript.load_seconds) == (
            "gguf",
            name,
            session.load_seconds,
        )
    assert exact.transcribe(noise(2.0)).tokens == expected.tokens
    activities.clear()
    repeated = registry.open(
        checkpoint, "gguf", threads=1, quantization="f32", on_progress=lambda *_: activities.append("x")
    )
    assert repeated.pid == exact.pid and not activities
    assert [each.quantization for each in registry.residents()] == ["f32", "q8_0"]
    pid = small.pid
    assert registry.unload(str(checkpoint), "gguf", "q8_0") and pid and gone(pid) and exact.pid


def test_conversion_can_be_cancelled_from_its_progress_callback(registry: Registry, tmp_path: Path) -> None:
    checkpoint = tiny_sensevoice(tmp_path / "tiny")

    def stop(share: float, activity: str) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        registry.open(checkpoint, "gguf", on_progress=stop)
    assert registry.residents() == [] and not any(
        each.converted for each in registry.weights(registry.card(checkpoint), "gguf")
    )


def test_measured_gguf_sizes_are_stored(registry: Registry, tmp_path: Path) -> None:
    card = registry.card(tiny_sensevoice(tmp_path / "tiny"))
    assert {each.nbytes for each in registry.weights(card, "gguf")} == {None}
    measured = registry.measure(card, "gguf")
    assert measured == registry.weights(card, "gguf") and all(each.nbytes for each in measured)
    assert registry.measure(card, "pytorch") == ()


def test_checkpoint_without_conversion_packages_is_ready_only_if_converted(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, file = tiny_sensevoice(tmp_path / "tiny"), put_gguf(tmp_path / "a.gguf")
    cards = [registry.card(model) for model in (checkpoint, "sensevoice-small", file)]
    present = find_spec
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: None if name == "torch" else present(name))
    reasons = [registry.availability(card, "gguf").reason for card in cards]
    needs = "its checkpoint must be converted first, which needs the Python packages torch, gguf, transformers; "
    assert reasons == [needs + "run: pip install torch", needs + "run: pip install torch", None]
    monkeypatch.undo()
    path = converted(checkpoint, "sensevoice", "q8_0")
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: None if name in CONVERSION else present(name))
    assert path.is_file() and registry.availability(cards[0], "gguf").ready


def test_damaged_user_gguf_file_is_unchanged_and_named_in_the_error(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF" + bytes(10))
    with pytest.raises(BadInput, match=rf"^mine\.gguf is .* \(the file is {re.escape(str(path))}\)$"):
        registry.open(path)
    assert path.read_bytes() == b"GGUF" + bytes(10)
