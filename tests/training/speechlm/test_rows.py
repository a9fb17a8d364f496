"""Training dialogues of the demo SpeechLM as token rows, and the loss on them, checked against slow definitions."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from workbench.speech.delay import aligned
from workbench.training.recognisers.speech_language import IGNORED, PLACEHOLDER
from workbench.training.speechlm.files import LAYOUT, SPECIALS, make_tokenizer
from workbench.training.speechlm.generate import generate_audio, generate_text
from workbench.training.speechlm.lm import SpeechLM, SpeechLMLoss, batch_of, predictions
from workbench.training.speechlm.rows import PAUSE, RowWriter, disturbed, without_context
from workbench.training.speechlm.tasks import Answer, Recording, as_text, draw_dialogue, held_out
from workbench.training.speechlm.voices import VOICES, Speaker

BOS, EOS, EOT, SYSTEM, USER, ASSISTANT, TEXT, AUDIO = (
    SPECIALS.index(f"<|{name}|>") for name in ("bos", "eos", "eot", "system", "user", "assistant", "text", "audio")
)


@pytest.fixture(scope="module")
def speaker():
    rng = np.random.default_rng(0)
    units = {(voice, digit): rng.integers(0, 1024, (2 + digit % 3, 8)) for voice in VOICES for digit in range(10)}
    return Speaker(units, np.zeros(8, np.int64))


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def writer(speaker, tokenizer):
    return RowWriter(lambda text: tokenizer.encode(text, add_special_tokens=False).ids, speaker, lambda recording: 3)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return SpeechLM().eval()


def answer(text, digits, form, natural):
    return Answer(text, digits, "slt", form, natural)


def test_text_answer_targets_include_the_text_marker_and_eos(writer):
    words = writer.encode("three one")
    example = writer.example([((("user", "write 31"),), answer("three one", (3, 1), "text", "text"))])
    request = [BOS, USER, TEXT, *writer.encode("write 31"), EOS]
    assert example.inputs[:, 0].tolist() == [*request, ASSISTANT, TEXT, *words, EOS]
    assert example.targets[:, 0].tolist() == [IGNORED] * (len(request) + 1) + [TEXT, *words, EOS]
    assert not example.inputs[:, 1:].any()
    assert (example.targets[:, 1:] == IGNORED).all()


def test_speech_answer_rows_are_the_delayed_codes_of_the_digits(writer, speaker):
    example = writer.example([((("user", "say 31"),), answer("three one", (3, 1), "audio", "audio"))])
    begin = example.inputs[:, 0].tolist().index(AUDIO)
    rows = example.inputs[begin + 1 : -1]
    codes = np.concatenate([np.zeros((1, 8)), speaker.units["slt", 3], speaker.units["slt", 1], np.zeros((1, 8))])
    for row in range(len(codes) + 7):
        for stream in range(8):
            code = codes[row - stream, stream] if 0 <= row - stream < len(codes) else -1
            assert rows[row, stream] == 768 + 1025 * stream + 1 + code
    assert np.array_equal(example.targets[begin + 1 : -1], rows)
    assert example.targets[begin].tolist() == [AUDIO] + [IGNORED] * 7
    assert example.inputs[-1].tolist() == [EOS] + [0] * 7
    assert example.targets[-1].tolist() == [EOS] + [IGNORED] * 7
    assert np.array_equal(aligned(rows, LAYOUT), codes)


@pytest.mark.parametrize(
    ("form", "natural", "marker", "end"),
    [("text", "audio", AUDIO, EOT), ("text_audio", "text", TEXT, EOS), ("audio", "text_audio", TEXT, None)],
)
def test_target_marker_is_the_natural_modality_for_any_requested_form(writer, form, natural, marker, end):
    example = writer.example([((("user", "31"),), answer("three one", (3, 1), form, natural))])
    first = example.inputs[:, 0].tolist().index(ASSISTANT) + 1
    assert example.inputs[first, 0] == (AUDIO if form == "audio" else TEXT)
    assert example.targets[first, 0] == marker
    if end is not None:
        closing = first + 1 + len(writer.encode("three one"))
        assert example.inputs[closing, 0] == (EOS if form == "text" else EOT)
        assert example.targets[closing, 0] == end


def test_text_and_speech_answer_repeats_the_assistant_marker_before_the_speech(writer):
    example = writer.example([((("user", "31"),), answer("three one", (3, 1), "text_audio", "text_audio"))])
    ids, targets = example.inputs[:, 0].tolist(), example.targets[:, 0].tolist()
    place = ids.index(EOT)
    assert ids[place : place + 3] == [EOT, ASSISTANT, AUDIO]
    assert targets[place : place + 3] == [EOT, IGNORED, AUDIO]


def test_consecutive_messages_of_one_role_are_separated_by_eot(writer):
    parts = (("system", "voice: slt"), ("user", Recording(7, (1,))), ("user", "repeat"))
    example = writer.prompt(parts)
    system, repeat = writer.encode("voice: slt"), writer.encode("repeat")
    expected = [BOS, SYSTEM, TEXT, *system, EOS, USER, AUDIO, *[PLACEHOLDER] * 3, EOT, USER, TEXT, *repeat, EOS]
    assert example.inputs[:, 0].tolist() == [*expected, ASSISTANT]
    assert example.recordings == [7]
    assert (example.targets == IGNORED).all()


def test_answer_without_digits_has_silent_speech(writer):
    example = writer.example([((("user", "hello"),), answer("I only know digits.", None, "audio", "text"))])
    begin = example.inputs[:, 0].tolist().index(AUDIO)
    codes = aligned(example.inputs[begin + 1 : -1], LAYOUT)
    assert codes.shape == (PAUSE, 8)
    assert not codes.any()


def test_dialogue_without_context_keeps_only_the_speech_targets(writer):
    turn = ((("user", Recording(0, (3,))), ("user", "repeat")), answer("three", (3,), "audio", "audio"))
    example = writer.example([turn])
    null = without_context(example)
    begin = len(example.inputs) - 1 - example.inputs[::-1, 0].tolist().index(AUDIO)
    assert not null.inputs[:begin].any()
    assert np.array_equal(null.inputs[begin:], example.inputs[begin:])
    assert (null.targets[: begin + 1] == IGNORED).all()
    assert np.array_equal(null.targets[begin + 1 :], example.targets[begin + 1 :])
    assert null.recordings == []
    assert without_context(writer.example(as_text([turn]))) is None


def test_disturbed_codes_stay_in_the_interval_of_their_stream(writer):
    example = writer.example([((("user", "say 31"),), answer("three one", (3, 1), "audio", "audio"))])
    rows = disturbed(example.inputs, 0.5, np.random.default_rng(0))
    codec = example.inputs >= LAYOUT.codec_first
    assert np.array_equal(rows[~codec], example.inputs[~codec])
    assert 0.3 < (rows[codec] != example.inputs[codec]).mean() < 0.6
    assert np.array_equal((rows[codec] - 768) // 1025, (example.inputs[codec] - 768) // 1025)


def test_drawn_dialogues_speak_no_held_out_strings_except_counting():
    rng = np.random.default_rng(0)
    forms = Counter()
    for _ in range(600):
        recordings = [Recording(0, tuple(rng.integers(0, 10, 4).tolist()))] if rng.random() < 0.5 else []
        (parts, reply) = draw_dialogue(rng, recordings)[-1]
        forms[reply.natural] += 1
        counts = any(isinstance(content, str) and content.lower().startswith("count") for _, content in parts)
        if reply.form != "text" and reply.digits is not None and not counts:
            assert not held_out(reply.digits)
    assert all(forms[form] > 50 for form in ("text", "audio", "text_audio"))


# --- the network -----------------------------------------------------------------------------------------------------


def test_batch_loss_equals_the_cross_entropy_computed_row_by_row(network, writer):
    rng = np.random.default_rng(1)
    examples = [writer.example(draw_dialogue(rng, [])) for _ in range(3)]
    with torch.no_grad():
        main, codec = predictions(network, batch_of(examples, None, None), None)
        losses, others = [], []
        for example in examples:
            embedded = []
            for row in example.inputs:
                vector = network.model.embed_tokens.weight[row[0]].clone()
                for number in row[1:]:
                    if number:
                        vector += network.model.embed_tokens.weight[number]
                embedded.append(vector)
            states = network.model(inputs_embeds=torch.stack(embedded)[None])[0][0]
            for place, row in enumerate(example.targets):
                for stream, number in enumerate(row.tolist()):
                    if number == IGNORED:
                        continue
                    first, end = LAYOUT.interval(stream)
                    logits = network.lm_head(states[place - 1] + (network.stream_emb.weight[stream] if stream else 0))
                    if stream:
                        others.append(F.cross_entropy(logits[first:end], torch.tensor(number - first)))
                    else:
                        losses.append(F.cross_entropy(logits[:end], torch.tensor(number)))
        assert F.cross_entropy(main.logits, main.targets).item() == pytest.approx(
            float(sum(losses) / len(losses)), rel=1e-4
        )
        assert F.cross_entropy(codec.logits, codec.targets).item() == pytest.approx(
            float(sum(others) / len(others)), rel=1e-4
        )


def test_loss_gives_gradients_to_all_parameters_except_the_audio_tower(writer):
    torch.manual_seed(0)
    network = SpeechLM()
    network.stream_emb.weight.data.normal_(0, 0.1)
    loss = SpeechLMLoss(network)
    examples = [writer.example([((("user", "31"),), answer("three one", (3, 1), "text_audio", "text_audio"))])]
    parts = loss(batch_of(examples, None, None), np.random.default_rng(0))
    torch.stack(list(parts.values())).sum().backward()
    tower = {id(p) for p in network.tower.parameters()}
    assert not any(id(p) in tower for p in loss.parameters())
    for name, value in network.named_parameters():
        if id(value) not in tower and not name.startswith("adaptor"):
            assert value.grad is not None
            assert value.grad.abs().sum() > 0, name


def test_generated_ids_stay_in_the_interval_of_their_segment(network, writer):
    examples = [writer.prompt((("user", text),)) for text in ("say three one", "say zero two")]
    batch = batch_of(examples, None, None)
    first, end = LAYOUT.text_first, LAYOUT.text_end
    assert all(first <= number < end for ids in generate_text(network, batch, 5) for number in ids)
    for rows in generate_audio(network, batch, 12):
        own = rows - LAYOUT.pads
        assert rows.shape[1] == 8
        assert (own >= 0).all()
        assert (own < LAYOUT.layer_size).all()


def test_cached_generation_equals_recomputing_every_row(network, writer):
    batch = batch_of([writer.prompt((("user", "say three one"),))], None, None)
    (generated,) = generate_audio(network, batch, 6)
    rows = np.concatenate([batch.inputs[0], LAYOUT.row(AUDIO)[None]])
    for row in generated:
        with torch.no_grad():
            state = network.hidden(network.embed(torch.from_numpy(rows)[None]))[0, -1]
            for stream in range(8):
                begin, end = LAYOUT.interval(stream)
                logits = network.lm_head(state + (network.stream_emb.weight[stream] if stream else 0))[begin:end]
                assert row[stream] == begin + int(logits.argmax())
        rows = np.concatenate([rows, row[None]])


def test_converting_a_dialogue_to_text_changes_only_the_answer_form():
    dialogue = draw_dialogue(np.random.default_rng(3), [], turns=2)
    for before, after in zip(dialogue, as_text(dialogue), strict=True):
        if isinstance(before[1], Answer):
            assert after == (before[0], replace(before[1], form="text"))
        else:
            assert after == before
