"""Weight files: supported formats are read, damaged files raise one-line errors, and pickled code is never run."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.tiny_checkpoints import tiny_paraformer, tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_safetensors, read_state_dict
from workbench.runtimes.pytorch.paraformer import ParaformerRunner
from workbench.runtimes.pytorch.sensevoice import SenseVoiceRunner

CPU = torch.device("cpu")
STATE = {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.tensor([1.0, -2.0, 3.0])}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)


LAYER = {f"layer.{name}": value for name, value in STATE.items()}


def sentence(error: pytest.ExceptionInfo[BadInput]) -> str:
    """Returns the message, and asserts that it is one line that names the file."""
    text = str(error.value)
    assert "\n" not in text and "Traceback" not in text and 20 < len(text) < 400
    assert "model.pt" in text
    return text


# Supported formats ---------------------------------------------------------------------------------------------------


def save_legacy(state: Any, path: Path) -> None:
    torch.save(state, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    ("wrap", "save"),
    [
        (lambda state: state, torch.save),
        (lambda state: state, save_legacy),
        (lambda state: {"state_dict": state, "epoch": 3}, torch.save),
        (lambda state: {"model_state_dict": state, "optimizer": {"lr": 0.1}}, torch.save),
        (lambda state: {"model": state}, save_legacy),
        (lambda state: {"module": state, "optimizer": None, "global_steps": 9}, torch.save),
        (lambda state: {f"module.{name}": value for name, value in state.items()}, torch.save),
        (lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}}, torch.save),
        (lambda state: {f"_orig_mod.{name}": value for name, value in state.items()}, torch.save),
        (lambda state: {f"_orig_mod.module.{name}": value for name, value in state.items()}, torch.save),
        (lambda state: {f"module._fsdp_wrapped_module.{name}": value for name, value in state.items()}, torch.save),
    ],
    ids=[
        *("plain", "legacy", "state_dict", "model_state_dict", "model-legacy", "deepspeed", "module", "wrapped-module"),
        *("compiled", "compiled-module", "sharded"),
    ],
)
def test_supported_torch_file_formats_are_read(
    wrap: Callable[[Any], Any], save: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    save(wrap(STATE), tmp_path / "model.pt")
    tensors = read_state_dict(tmp_path / "model.pt")
    assert list(tensors) == list(STATE)
    assert all(torch.equal(tensors[name], value) for name, value in STATE.items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.save({name: value.to(dtype) for name, value in LAYER.items()}, tmp_path / "model.pt")
    network = build(Network)
    load_into(network, read_state_dict(tmp_path / "model.pt"), "model.pt")
    assert network.layer.weight.dtype == torch.float32
    assert torch.equal(network.layer.weight, STATE["weight"])
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_bfloat16_checkpoint_equals_the_rounded_float32_checkpoint(tmp_path: Path) -> None:
    """bfloat16 weights are widened to float32 without another rounding."""
    full = tiny_sensevoice(tmp_path / "whole")
    half = shutil.copytree(full, tmp_path / "half")
    state = torch.load(full / "model.pt", weights_only=True)
    torch.save({name: value.to(torch.bfloat16) for name, value in state.items()}, half / "model.pt")
    rounded = {name: value.to(torch.bfloat16).float() for name, value in state.items()}
    torch.save(rounded, full / "model.pt")
    features, queries = torch.randn(1, 12, 560), torch.tensor([[0, 1, 2, 15]])
    with torch.inference_mode():
        expected, actual = (SenseVoiceRunner(read_sensevoice(d), CPU).network(features, queries) for d in (full, half))
    assert torch.equal(expected, actual)


def test_building_takes_no_memory_for_parameters() -> None:
    assert all(parameter.is_meta for parameter in build(Network).parameters())


def test_unused_tensors_are_refused_unless_listed_as_ignored() -> None:
    network = build(Network)
    load_into(network, {**LAYER, "embed.0.weight": torch.zeros(2)}, "x/model.pt", ["embed.*"])
    with pytest.raises(BadInput, match=r"has tensor embed\.0\.weight, which the network of its config\.yaml does not"):
        load_into(network, {**LAYER, "embed.0.weight": torch.zeros(2)}, "x/model.pt")


# Damaged files -------------------------------------------------------------------------------------------------------


def test_other_weight_files_named_as_torch_files_are_called_by_their_format(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    save_file(LAYER, path)
    with pytest.raises(BadInput, match=r"model\.pt is a safetensors file under another name; give it the end"):
        read_state_dict(path)
    path.write_bytes(b"GGUF\x03\0\0\0" + bytes(16))
    with pytest.raises(BadInput, match=r"model\.pt is a GGUF file under another name"):
        read_state_dict(path)


def test_other_value_under_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2), 2: "x"}, tmp_path / "model.pt")
    with pytest.raises(BadInput, match=r"model\.pt holds a str under '2'; expected a state dict"):
        read_state_dict(tmp_path / "model.pt")


@pytest.mark.parametrize("save", [torch.save, save_legacy], ids=["zip", "legacy"])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.2, 0.5, 0.9, 0.99, 0.999])
def test_truncated_torch_file_raises_one_line_error(
    save: Callable[[Any, Path], None], part: float, tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    save({f"layer.{n}": torch.randn(40, 40) for n in range(5)}, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(BadInput) as error:
        read_state_dict(path)
    assert "damaged" in sentence(error) or "truncated" in sentence(error)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello, these are no weights\n" * 40,
        b"\x80\x02",
        b"\x80\x02.",
        b"\x00" * 5000,
        b"PK\x03\x04",
        b"{}",
    ],
    ids=["empty", "newline", "text", "pickle-start", "pickle-nothing", "zeros", "zip-start", "json"],
)
def test_file_of_another_format_raises_one_line_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_state_dict(tmp_path / "model.pt")
    assert "expected a state dict" in sentence(error)


def test_zip_file_without_weights_raises_one_line_error(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    with pytest.raises(BadInput) as error:
        read_state_dict(tmp_path / "model.pt")
    sentence(error)


@pytest.mark.parametrize("seed", range(20))
def test_corrupted_bytes_give_tensors_or_bad_input(seed: int, tmp_path: Path) -> None:
    """Damage in the values of a tensor cannot be detected; all other damage raises an error."""
    path = tmp_path / "model.pt"
    (save_legacy if seed % 2 else torch.save)(STATE, path)
    content = bytearray(path.read_bytes())
    draw = torch.Generator().manual_seed(seed)
    for at in torch.randint(len(content), (12,), generator=draw).tolist():
        content[at] = int(torch.randint(256, (1,), generator=draw))
    path.write_bytes(content)
    with contextlib.suppress(BadInput):
        assert all(isinstance(value, Tensor) for value in read_state_dict(path).values())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([torch.zeros(2)], "a list"),
        (7, "an int"),
        ("weights", "a str"),
        (None, "nothing"),
        ({}, "empty"),
        ([], "empty"),
        (torch.zeros(3), "a single tensor"),
        ({"weight": "heavy"}, "a str under 'weight'"),
        ({"weight": {"deeper": torch.zeros(1)}}, "a dict under 'weight'"),
        ({"state_dict": {"weight": [1.0, 2.0]}}, "a list under 'weight'"),
        ({"state_dict": {}}, "empty"),
        ({"epoch": 3, "weight": torch.zeros(1)}, "an int under 'epoch'"),
        ({"weight": torch.eye(3).to_sparse()}, "tensor weight is sparse_coo; expected plain values"),
        ({"weight": torch.empty(3, device="meta")}, "tensor weight is on the device meta"),
    ],
    ids=str,
)
@pytest.mark.parametrize("save", [torch.save, save_legacy], ids=["zip", "legacy"])
def test_pickle_that_is_not_a_state_dict_raises_one_line_error(
    content: Any, says: str, save: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    save(content, tmp_path / "model.pt")
    with pytest.raises(BadInput) as error:
        read_state_dict(tmp_path / "model.pt")
    assert says in sentence(error)


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("save", [torch.save, save_legacy, None], ids=["zip", "legacy", "bare"])
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"weight": it}, lambda it: {**STATE, "extra": it}])
def test_code_in_a_pickle_does_not_run(
    save: Callable[[Any, Path], None] | None, wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    touched, path = tmp_path / "made", tmp_path / "model.pt"
    if save:
        save(wrap(Payload(touched)), path)
    else:
        path.write_bytes(pickle.dumps(wrap(Payload(touched))))
    with pytest.raises(BadInput) as error:
        read_state_dict(path)
    assert "expected a state dict" in sentence(error)
    assert not touched.exists()
    if save:
        torch.load(path, weights_only=False)
    else:
        pickle.loads(path.read_bytes())
    assert touched.exists()  # without the check the payload runs


def test_a_safetensors_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(STATE, path)
    assert set(read_state_dict(path)) == set(STATE)
    tensors = read_safetensors(path)
    assert set(tensors) == set(STATE) and all(torch.equal(tensors[name], value) for name, value in STATE.items())
    regions = mapped_regions(path, tmp_path / "absent")
    assert all(any(low <= value.data_ptr() < high for low, high in regions) for value in tensors.values())


@pytest.mark.parametrize("size", [0, 7, 60, -1])
def test_truncated_safetensors_file_raises_one_line_error(size: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(STATE, path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadInput) as error:
        read_safetensors(path)
    text = str(error.value)
    assert "model.safetensors is damaged or not a safetensors file" in text and "\n" not in text


# Parts of a network --------------------------------------------------------------------------------------------------


def test_partial_loading_still_refuses_unknown_tensors() -> None:
    network = build(Network)
    load_into(network, LAYER, "it/model.pt", loaded_globs=["*.bias"])
    assert network.layer.bias.tolist() == [1.0, -2.0, 3.0] and network.layer.weight.is_meta
    finalise_weights(network, CPU)
    assert network.layer.weight.is_meta
    with pytest.raises(BadInput, match="has tensor other"):
        load_into(build(Network), {**LAYER, "other": torch.zeros(1)}, "it/model.pt", loaded_globs=["*.bias"])


# Tensors that do not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer.bias": None}, "lacks tensor layer.bias, which its config.yaml calls for"),
        ({"layer.bias": None, "layer.weight": None}, "lacks tensor layer.weight (and 1 more)"),
        ({"other": torch.zeros(1)}, "has tensor other, which the network of its config.yaml does not have"),
        ({"layer.bias": torch.zeros(4)}, "tensor layer.bias has shape (4,)"),
        ({"layer.weight": torch.zeros(4, 3)}, "vocabulary call for (3, 4)"),
        ({"layer.bias": torch.zeros(3, dtype=torch.int64)}, "tensor layer.bias holds torch.int64"),
        ({"layer.bias": torch.zeros(3, dtype=torch.bool)}, "expected floating point"),
        ({"layer.bias": torch.zeros(3, dtype=torch.complex64)}, "expected floating point"),
        ({"layer.bias": torch.tensor([0.0, float("nan"), 1.0])}, "tensor layer.bias holds values that are not finite"),
        ({"layer.weight": torch.full((3, 4), float("inf"))}, "not finite (NaN or infinity)"),
        ({"layer.bias": torch.tensor([float("inf"), float("-inf"), 0.0])}, "not finite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_missing_extra_or_misshapen_tensor_raises_one_line_error(
    change: dict[str, Tensor | None], says: str, tmp_path: Path
) -> None:
    state = {name: value for name, value in {**LAYER, **change}.items() if value is not None}
    torch.save(state or {"z": torch.zeros(1)}, tmp_path / "model.pt")
    with pytest.raises(BadInput) as error:
        load_into(build(Network), read_state_dict(tmp_path / "model.pt"), "it/model.pt", ["z"])
    assert says in sentence(error)


def test_large_finite_values_are_accepted() -> None:
    """The sum of the values overflows, but each value is finite."""
    network = build(Network)
    load_into(network, {**LAYER, "layer.bias": torch.full((3,), 3e38)}, "it/model.pt")
    assert network.layer.bias.tolist() == pytest.approx([3e38] * 3)


@pytest.mark.parametrize("family", ["sensevoice", "paraformer"])
def test_whole_models_refuse_weights_of_others(family: str, tmp_path: Path) -> None:
    write, read, runner = {
        "sensevoice": (tiny_sensevoice, read_sensevoice, SenseVoiceRunner),
        "paraformer": (tiny_paraformer, read_paraformer, ParaformerRunner),
    }[family]
    directory = write(tmp_path / "it")
    other_directory = {"sensevoice": tiny_paraformer, "paraformer": tiny_sensevoice}[family](tmp_path / "other")
    shutil.copy(other_directory / "model.pt", directory / "model.pt")
    with pytest.raises(BadInput) as error:
        runner(read(directory), CPU)  # type: ignore[operator]
    assert "lacks tensor" in sentence(error)


@pytest.mark.parametrize(
    ("save", "sentence"),
    [
        (
            lambda path: torch.save(STATE, path, pickle_protocol=4),
            "holds objects other than tensors, or another pickle protocol than torch's, and is not loaded",
        ),
        (lambda path: torch.jit.save(torch.jit.script(nn.Linear(2, 2)), path), "damaged or not a torch file"),
    ],
    ids=["protocol 4", "TorchScript"],
)
def test_a_refused_file_leaves_no_warning_of_torch(
    save: Callable[[Path], None], sentence: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    save(tmp_path / "model.pt")
    recwarn.clear()
    with pytest.raises(BadInput, match=sentence):
        read_state_dict(tmp_path / "model.pt")
    assert not list(recwarn)


def test_names_with_a_prefix_are_recognised_in_the_error() -> None:
    renamed = {f"model.{name}": value for name, value in LAYER.items()}
    with pytest.raises(
        BadInput, match=r"calls for; it has model\.layer\.weight: take 'model\.' off the names, and save"
    ):
        load_into(build(Network), renamed, "x/model.pt")
