"""Fun-ASR-Nano as a directory for vLLM: read back, it equals the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("transformers", reason="needs transformers")

from tests.support.tiny_checkpoints import FRONTEND  # noqa: E402
from tests.support.tiny_funasr_nano import LANGUAGE_DIRECTORY, tiny_funasr_nano  # noqa: E402
from tests.support.tiny_language import change_json  # noqa: E402
from workbench.conversion.language_weights import read_language_weights  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.families.language.directory import AUDIO  # noqa: E402
from workbench.families.speech_llm.funasr_nano import (  # noqa: E402
    FunasrNanoModel,
    FunasrNanoOptions,
    prompt_ids,
    read_funasr_nano,
    read_vllm_funasr_nano,
)

DEMO = Path(__file__).resolve().parents[3] / "assets" / "demo-funasr-nano"


def vllm_directory(directory: Path, tmp_path: Path) -> Path:
    out = tmp_path / "served"
    write_directory(plan_of(directory, "funasr_nano"), out)
    return out


def description(model: FunasrNanoModel) -> tuple[Any, ...]:
    frontend = replace(model.frontend, cmvn_file=None)
    language = replace(model.language, directory=Path(), pad_id=None)
    return frontend, model.encoder, model.adaptor, language, model.do_think, model.sys_prompt, model.stop_ids


def tensors_of(directory: Path) -> Mapping[str, Any]:
    content = torch.load(directory / "model.pt", weights_only=True)
    return content.get("state_dict", content)


def test_demo_vllm_directory_reads_back_as_the_checkpoint(tmp_path: Path) -> None:
    out = vllm_directory(DEMO, tmp_path)
    before, after = read_funasr_nano(DEMO), read_vllm_funasr_nano(out)
    assert description(before) == description(after) and after.cmvn_file is None
    options = FunasrNanoOptions(language="en", itn=False, hotwords=("one", "two"))
    assert prompt_ids(before, options).tolist() == prompt_ids(after, options).tolist()
    expected = tensors_of(DEMO)
    tensors, _ = read_language_weights(out)
    assert tensors.keys() == expected.keys()
    assert all(
        tensors[name].dtype == value.dtype and torch.equal(tensors[name], value) for name, value in expected.items()
    )
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["SpeechWorkbenchFunASRNano"] and config["model_type"] == "qwen3"
    assert config["audio_encoder_conf"]["output_size"] == 144 and "input_size" not in config["audio_encoder_conf"]
    processor = json.loads((out / "preprocessor_config.json").read_text())
    assert processor["processor_class"] == "FunASRProcessor" and processor["frontend_conf"]["cmvn_file"] is None


def test_checkpoint_with_cmvn_ctc_decoder_and_custom_prompt_is_converted(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(
        tmp_path / "tiny",
        dtype=torch.bfloat16,
        dataset_conf={"do_think": False, "sys_prompt": False},
        audio_encoder_conf={"input_size": 560},
    )
    vector = " ".join(["1.5"] * 560)
    text = f"<Nnet>\n<Splice> 560 560\n[ 0 ]\n<AddShift> 560 560\n<LearnRateCoef> 0 [ {vector} ]\n"
    (directory / "am.mvn").write_text(f"{text}<Rescale> 560 560\n<LearnRateCoef> 0 [ {vector} ]\n</Nnet>\n")
    tensors = {**tensors_of(directory), "ctc.ctc_lo.weight": torch.ones(2, 3)}
    torch.save({"state_dict": tensors}, directory / "model.pt")
    out = vllm_directory(directory, tmp_path)
    before, after = read_funasr_nano(directory), read_vllm_funasr_nano(out)
    assert before.cmvn_file is not None and after.cmvn_file == out / "am.mvn"
    assert after.cmvn_file.read_bytes() == before.cmvn_file.read_bytes()
    assert description(before) == description(after) and not after.do_think and not after.sys_prompt
    written, _ = read_language_weights(out)
    assert not any(name.startswith("ctc") for name in written)
    assert {value.dtype for value in written.values()} == {torch.bfloat16}
    assert "input_size" not in json.loads((out / "config.json").read_text())["audio_encoder_conf"]


def test_audio_token_of_a_full_vocabulary_gets_the_next_id(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny")
    tokens = len(read_funasr_nano(directory).tokenizer)
    change_json(directory / LANGUAGE_DIRECTORY / "config.json", vocab_size=tokens)
    tensors = dict(tensors_of(directory))
    for name in ("llm.model.embed_tokens.weight", "llm.lm_head.weight"):
        tensors[name] = tensors[name][:tokens].clone()
    torch.save(tensors, directory / "model.pt")
    model = read_vllm_funasr_nano(vllm_directory(directory, tmp_path))
    assert model.tokenizer.id_of(AUDIO) == tokens == model.language.vocabulary


@pytest.mark.parametrize("tied", [True, False])
def test_output_matrix_is_stored_only_if_different_from_the_embeddings(tied: bool, tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny")
    change_json(directory / LANGUAGE_DIRECTORY / "config.json", tie_word_embeddings=True)
    tensors = dict(tensors_of(directory))
    if tied:
        tensors["llm.lm_head.weight"] = tensors["llm.model.embed_tokens.weight"].clone()
    torch.save(tensors, directory / "model.pt")
    out = vllm_directory(directory, tmp_path)
    assert json.loads((out / "config.json").read_text())["tie_word_embeddings"] is tied
    assert ("llm.lm_head.weight" in read_language_weights(out)[0]) is not tied


def test_missing_extra_and_non_finite_tensors_are_refused(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "tiny", frontend_conf=FRONTEND)
    tensors = dict(tensors_of(directory))
    name = "audio_adaptor.linear1.weight"
    broken = tensors[name].clone()
    broken[0, 0] = torch.nan
    for changed, message in (
        ({key: value for key, value in tensors.items() if key != name}, rf"tiny/model\.pt lacks tensor {name}"),
        ({**tensors, "other.weight": tensors[name]}, r"tiny/model\.pt has tensor other\.weight"),
        ({**tensors, name: tensors[name][:3]}, rf"tiny/model\.pt: tensor {name} has shape \(3, 16\)"),
        ({**tensors, name: broken}, rf"tiny/model\.pt: tensor {name} holds values that are not finite"),
        ({**tensors, name: tensors[name].long()}, rf"tiny/model\.pt: tensor {name} holds torch\.int64"),
        ({**tensors, "llm.model.other": tensors[name]}, r"tiny/model\.pt has tensor model\.other"),
    ):
        torch.save(changed, directory / "model.pt")
        with pytest.raises(BadInput, match=message):
            vllm_directory(directory, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
