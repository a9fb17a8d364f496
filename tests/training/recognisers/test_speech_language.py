import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from workbench.training.recognisers.lora import ALPHA, RANK, add_lora, base_tensors, lora_tensors
from workbench.training.recognisers.speech_language import PLACEHOLDER, Dialogue, DigitVectors, answer_loss, ctc_loss


@pytest.fixture(scope="module")
def language():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=40, num_key_value_heads=2, **sizes)).eval()


def test_answer_loss_is_the_cross_entropy_of_answer_tokens_given_the_prompts(language):
    speech, lengths = torch.randn(2, 5, 32), torch.tensor([3, 5])
    dialogues = [Dialogue([1, PLACEHOLDER, 2, 3], [4, 5, 6]), Dialogue([7, 8, PLACEHOLDER], [9, 10])]
    losses = []
    for row, (dialogue, frames) in enumerate(zip(dialogues, lengths.tolist())):
        at = dialogue.prompt.index(PLACEHOLDER)
        text = language.get_input_embeddings()
        before, after = dialogue.prompt[:at], [*dialogue.prompt[at + 1 :], *dialogue.answer]
        parts = [text(torch.tensor(before)), speech[row, :frames], text(torch.tensor(after))]
        logits = language(inputs_embeds=torch.cat(parts)[None]).logits[0]
        count = len(dialogue.answer)
        losses += F.cross_entropy(logits[-count - 1 : -1], torch.tensor(dialogue.answer), reduction="none").tolist()
    assert answer_loss(language, dialogues, speech, lengths).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_answer_loss_of_text_only_dialogues_needs_no_speech(language):
    loss = answer_loss(language, [Dialogue([1, 2, 3], [4, 5])])
    logits = language(torch.tensor([[1, 2, 3, 4, 5]])).logits[0]
    assert loss.item() == pytest.approx(F.cross_entropy(logits[2:4], torch.tensor([4, 5])).item(), rel=1e-5)


@given(digits=st.lists(st.integers(0, 9), max_size=8), dense=st.booleans(), seed=st.integers(0, 1000))
def test_digit_vector_string_collapses_to_its_digits(digits, dense, seed):
    vectors = DigitVectors(64)
    embeddings, counts = vectors.strings([digits], dense, np.random.default_rng(seed))
    assert embeddings.shape == (1, int(counts[0]), 64)
    nearest = torch.cdist(embeddings[0], vectors.table).argmin(dim=1).tolist()
    collapsed = [number for place, number in enumerate(nearest) if place == 0 or nearest[place - 1] != number]
    assert [number - 1 for number in collapsed if number] == digits


def test_ctc_loss_of_confident_correct_logits_is_zero():
    logits = torch.full((1, 4, 11), -50.0)
    for frame, number in enumerate([4, 0, 4, 2]):  # three, nothing, three, one
        logits[0, frame, number] = 50.0
    assert ctc_loss(logits, torch.tensor([4]), [(3, 3, 1)]).item() == pytest.approx(0.0, abs=1e-4)
    assert ctc_loss(logits, torch.tensor([4]), [(3, 1)]).item() > 10


def test_lora_starts_equal_to_the_base_model_and_splits_into_base_and_lora_weights():
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    language = Qwen2ForCausalLM(config).eval()
    before = {name: value.clone() for name, value in language.state_dict().items()}
    ids = torch.tensor([[1, 2, 3]])
    logits = language(ids).logits
    add_lora(language)
    assert torch.equal(language(ids).logits, logits)
    assert {name for name, p in language.named_parameters() if p.requires_grad} == {
        name for name, _ in language.named_parameters() if name.endswith(("lora_A", "lora_B"))
    }
    for name, value in language.state_dict().items():
        if name.endswith("lora_B"):
            value.normal_(0, 0.1)
    base, changes = base_tensors(language), lora_tensors(language)
    assert base.keys() == before.keys() and all(torch.equal(base[name], before[name]) for name in before)
    assert len(changes) == 2 * 2 * 7
    merged = Qwen2ForCausalLM(config).eval()
    merged.load_state_dict(base)
    for name in [name for name in changes if name.endswith("lora_A.default.weight")]:
        stem = name.removesuffix(".lora_A.default.weight")
        weight = merged.get_parameter(stem.removeprefix("llm.base_model.model.") + ".weight")
        weight.data += ALPHA / RANK * changes[f"{stem}.lora_B.default.weight"] @ changes[name]
    assert torch.allclose(merged(ids).logits, language(ids).logits, atol=1e-4)
    assert not torch.allclose(merged(ids).logits, logits, atol=1e-2)
