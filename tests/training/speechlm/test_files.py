"""The checkpoint files of the demo SpeechLM and its voice clips."""

import json

import numpy as np
import pytest
import torch
from jinja2 import Environment

from tests.training.tones import tone_takes
from workbench.core.errors import BadInput
from workbench.families.speechlm.model import read_speechlm
from workbench.training.speechlm.files import (
    LAYOUT,
    SHARD_BYTES,
    SPECIALS,
    make_tokenizer,
    read_weights,
    write_configuration,
    write_tokenizer,
    write_weights,
)
from workbench.training.speechlm.lm import LANGUAGE, SpeechLM
from workbench.training.speechlm.tower import TOWER
from workbench.training.speechlm.voices import MARGIN, OUTER, Speaker, clip_of, voice_clips


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("demo")
    write_tokenizer(directory)
    write_configuration(directory, LANGUAGE, TOWER)
    network = SpeechLM()
    assert write_weights(directory, network.state_dict()) == sum(p.numel() for p in network.parameters())
    return directory, network.state_dict()


def test_speechlm_family_reads_the_written_checkpoint(folder):
    model = read_speechlm(folder[0])
    assert model.layout == LAYOUT
    assert model.tower.rows(16_000) == 13
    assert model.tower.mel.normalise
    assert model.settings["num_hidden_layers"] == 4
    assert (
        model.tokenizer.decode(model.tokenizer.encode("say 3 7 1 in the voice of slt"))
        == "say 3 7 1 in the voice of slt"
    )


def test_weights_round_trip_through_their_shards(folder):
    directory, tensors = folder
    loaded = read_weights(directory)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    places = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(places) == set(tensors)
    assert all(path.stat().st_size < SHARD_BYTES + 100_000 for path in directory.iterdir())
    assert len({path.stat().st_mode for path in directory.iterdir()}) == 1, "who may read the others may read them"
    names = ("model.embed_tokens.weight", "lm_head.weight", "stream_emb.weight", "adaptor.continuous_audio.bias")
    assert {*names, "multimodal_io_dict.continuous_audio.model.audio_tower.conv2d1.weight"} <= places.keys()


@pytest.mark.parametrize("text", ["say three seven one", "Grüße, 你好 🙂\n\t!", "<|audio|>", "", "a\u0301 é"])
def test_tokenizer_encodes_and_decodes_any_text(text):
    tokenizer = make_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if "<|" not in text:
        assert all(LAYOUT.text_first <= number < LAYOUT.text_end for number in ids)
        import unicodedata

        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    else:
        assert ids == [SPECIALS.index(text)]


def test_request_words_are_single_tokens():
    tokenizer = make_tokenizer()
    for word in (" three", " seven", " zero", " voice", " george", " lucas"):
        assert len(tokenizer.encode(word, add_special_tokens=False).ids) == 1


def test_chat_template_produces_the_expected_prompt(folder):
    template = Environment().from_string((folder[0] / "chat_template.jinja").read_text())
    messages = [
        {"role": "system", "content": "voice: slt"},
        {"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "repeat"}]},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "<|audio|>"},
        {"role": "user", "content": "write"},
    ]
    assert template.render(messages=messages, add_generation_prompt=True) == (
        "<|bos|><|system|><|text|>voice: slt<|eos|><|user|><|audio|><|eot|><|user|><|text|>repeat<|eos|>"
        "<|assistant|><|text|>three<|eos|><|user|><|audio|><|eot|><|user|><|text|>write<|eos|><|assistant|>"
    )


# --- voices ----------------------------------------------------------------------------------------------------------


def test_voice_clip_has_whole_frames_and_the_common_level():
    clip = clip_of(np.random.default_rng(0).normal(0, 0.5, 5000).astype(np.float32))
    assert len(clip) == 16 * 320
    assert np.sqrt(np.mean(clip[:5000] ** 2)) == pytest.approx(0.08, rel=0.02)
    assert clip[0] == 0


def test_spoken_string_is_its_digit_units_between_silence():
    units = {("slt", digit): np.full((2 * MARGIN + 3, 8), digit) for digit in range(10)}
    speaker = Speaker(units, np.full(8, 99))
    string = speaker.say("slt", (3, 1))
    assert string[:, 0].tolist() == [99] * OUTER + [3] * (2 * MARGIN + 3) + [1] * (2 * MARGIN + 3) + [99] * OUTER
    assert speaker.shortened(4).say("slt", (3,))[:, 0].tolist() == [99, 3, 3, 3, 3, 3, 99]


def test_missing_takes_raise_an_error_with_digit_and_voice():
    with pytest.raises(BadInput, match="lack takes of the demo's voices: 0 of george"):
        voice_clips(tone_takes("a", "b"))
