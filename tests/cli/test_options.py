"""`workbench options`: the options and settings of a model, from the same declarations as the flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.arguments.parser import parser
from workbench.cli.commands import main
from workbench.cli.options import describe_options
from workbench.core.options import option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import settings_of
from workbench.families import FAMILIES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry


def card(family: str, kind: str = "directory", **fields: Any) -> Card:
    return Card("m", "m", family, {kind: "/nowhere"}, **fields)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_option_and_setting_is_listed_with_an_existing_flag(family: str) -> None:
    description = describe_options(card(family))
    assert [each["name"] for each in description["options"]] == [
        spec.name for spec in option_specs(FAMILIES[family].options_class)
    ]
    runtimes = [name for name in RUNTIMES if FAMILIES[family].cell(name).module]
    assert description["runtimes"] == runtimes
    expected = {name for runtime in runtimes for name in settings_of(runtime)}
    assert {each["name"] for each in description["settings"]} >= expected - {"kv_cache"}
    for call in description["calls"]:
        command = parser()._subparsers._group_actions[0].choices[call]  # type: ignore[union-attr,index,call-overload]
        flags = set(command._option_string_actions)
        for each in (*description["options"], *description["settings"]):
            if (call, each["name"]) != ("chat", "system"):  # a flag of the command itself, the same for all models
                assert set(each["flag"].split(", ")) <= flags and each["help"] and each["runtimes"]
    chats_alone = description["calls"] == ["chat", "trace"]  # then all its options are those of chat
    assert bool(description["chat_options"]) == ("chat" in description["calls"] and not chats_alone)


def test_model_card_limits_runtimes_and_settings() -> None:
    assert describe_options(card("sensevoice", "gguf"))["runtimes"] == ["gguf"]
    assert [each["name"] for each in describe_options(card("sensevoice", "gguf"))["settings"]] == ["threads"]
    assert describe_options(card("causal_lm", "server"))["runtimes"] == ["vllm"]
    assert describe_options(card("causal_lm", "server"))["settings"] == []
    limited = describe_options(card("causal_lm", runtimes={"gguf": "no"}, settings={"vllm": {"dtype": "bfloat16"}}))
    assert limited["runtimes"] == ["pytorch", "vllm"]
    [dtype] = [each for each in limited["settings"] if each["name"] == "dtype"]
    assert dtype["defaults"] == {"pytorch": "float32", "vllm": "bfloat16"}
    [dtype] = [each for each in describe_options(card("sensevoice"))["settings"] if each["name"] == "dtype"]
    assert dtype["choices"] == ["auto", "float32", "bfloat16", "float16", "float64"]


def test_options_are_printed_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "demo/fireredasr"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "demo/fireredasr: FireRedASR-LLM, on pytorch, gguf, vllm"
    assert out[2] == "options of transcribe, chat, trace"
    assert out[out.index("further options of chat") + 1].startswith("  --modalities")
    [beam] = [line.split(maxsplit=5) for line in out if line.startswith("  --beam-size")]
    assert beam[:5] == ["--beam-size", "whole", "number", "1", "pytorch,gguf"]
    assert beam[5].startswith("hypotheses followed in parallel") and beam[5].endswith("; 1 to 64")


def test_options_json_matches_the_description(capsys: pytest.CaptureFixture[str], registry: Registry) -> None:
    assert main(["options", "demo/qwen3", "--json"]) == 0
    description = json.loads(capsys.readouterr().out)
    assert description == json.loads(json.dumps(describe_options(registry.card("demo/qwen3"))))
    assert description["calls"] == ["generate", "inject", "chat", "trace"]


def test_funasr_nano_beam_search_options_exclude_vllm() -> None:
    runtimes = {
        each["name"]: each["runtimes"] for each in describe_options(Registry().card("demo/funasr-nano"))["options"]
    }
    assert runtimes["beam_size"] == runtimes["lm"] == ["pytorch", "gguf"] and "vllm" in runtimes["hotwords"]
    runtimes = {
        each["name"]: each["runtimes"] for each in describe_options(Registry().card("demo/sensevoice"))["options"]
    }
    assert runtimes["beam_size"] == ["pytorch", "gguf"]


def test_an_unknown_model_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["options", str(tmp_path / "none")]) == 2
    assert "there is no model" in capsys.readouterr().err


def test_missing_inner_stages_of_a_runtime_are_listed_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "attention.weights" in describe_options(card("funasr_nano"))["not_inside"]["vllm"]
    assert not describe_options(card("sensevoice"))["not_inside"]
    assert main(["options", "demo/funasr-nano"]) == 0
    note = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  vllm: no attention"))
    assert note.endswith("trace them on pytorch or gguf")
