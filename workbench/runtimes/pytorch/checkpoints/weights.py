"""Opens torch and safetensors weight files and loads them into a network; every tensor must be known.

Only tensors are unpickled (`weights_only=True`). Zip-format and safetensors files are memory-mapped, and the network
takes the mapped tensors as its parameters: a checkpoint is never in memory twice. This file knows no family.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar
from zipfile import is_zipfile

import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput, message_of
from workbench.core.phrases import name_in_folder
from workbench.formats.weight_files import check_downloaded
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions, release_pages
from workbench.runtimes.pytorch.numerics.weight_override import register_network

Network = TypeVar("Network", bound=nn.Module)

WRAPPERS = ("state_dict", "model_state_dict", "model", "module")  # the last one is DeepSpeed's
WRAPPED_MODULES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")  # of torch.compile and others


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a `.pt` file by name, without the usual wrappers of a training; memory-mapped if possible.
    A file with the ending `.safetensors` is read as one.

    Raises `BadInput` if the file is truncated, is not a torch file, contains code or other objects, or has no tensors
    by name.
    """
    if path.suffix == ".safetensors":
        return {plain_name(name): value for name, value in read_safetensors(path).items()}
    where = name_in_folder(path)
    check_downloaded(path, where)
    check_torch_file(path, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that are refused below
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    except pickle.UnpicklingError as error:
        if "Unsupported operand" in str(error):
            raise BadInput(
                f"{where} holds objects other than tensors, or another pickle protocol than torch's, and is not "
                "loaded; expected a state dict saved with torch.save and its usual protocol"
            ) from error
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise BadInput(
                f"{where} holds objects other than tensors, which are not loaded; expected a state dict"
            ) from error
        raise BadInput(f"{where} is damaged or not a torch file; expected a state dict from torch.save") from error
    except Exception as error:
        # On a damaged file, torch's reader fails in many ways: assertions, errors of zip and struct.
        size = path.stat().st_size
        problem = f"{where} ({size} bytes) is truncated, damaged or not a torch file"
        raise BadInput(f"{problem}; expected a state dict saved with torch.save") from error
    for wrapper in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
            break
    if not isinstance(loaded, Mapping) or not loaded:
        raise BadInput(f"{where} holds {_kind(loaded)}; expected a state dict (tensors by name)")
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise BadInput(f"{where} holds {_kind(value)} under {str(name)!r}; expected a state dict (tensors by name)")
    check_layouts(loaded, where)
    return {plain_name(str(name)): value for name, value in loaded.items()}


def plain_name(name: str) -> str:
    """Returns a tensor's name without the parts that a training's wrappers of modules add to it."""
    for part in WRAPPED_MODULES:
        name = name.replace(part, "")
    return name.removeprefix("module.")  # of DataParallel


def check_torch_file(path: Path, where: str) -> None:
    """Raises `BadInput` for a safetensors or GGUF file with the name of a torch file."""
    try:
        with path.open("rb") as file:
            begin = file.read(9)
    except OSError:
        return  # torch.load says why it cannot be read
    if begin.startswith(b"GGUF"):
        raise BadInput(f"{where} is a GGUF file under another name; give it the ending .gguf, and open it as a model")
    if begin[8:] == b"{" and int.from_bytes(begin[:8], "little") < path.stat().st_size:
        raise BadInput(f"{where} is a safetensors file under another name; give it the ending .safetensors")


def check_layouts(tensors: Mapping[Any, Tensor], where: str) -> None:
    """Raises `BadInput` for a tensor that is not stored as plain values in memory, such as a sparse one."""
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            storage = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
            storage = storage if tensor.device.type == "cpu" else f"on the device {tensor.device.type}"
            raise BadInput(f"{where}: tensor {str(name)[:80]} is {storage}; expected plain values, one after another")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file by name, memory-mapped.

    Raises `BadInput` if the file is truncated or is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    where = name_in_folder(path)
    check_downloaded(path, where)
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{where} is damaged or not a safetensors file: {message_of(error)}") from error


def build(network: Callable[..., Network], *arguments: object) -> Network:
    """Builds the network without memory for its parameters; `load_into` provides them."""
    with torch.device("meta"):
        return network(*arguments).eval()


def load_into(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    where: str,
    unused_globs: Sequence[str] = (),
    mapped_from: Path | Sequence[Path] | None = None,
    described_in: str = "its config.yaml",
    dtype: torch.dtype = torch.float32,
    loaded_globs: Sequence[str] = ("*",),
) -> None:
    """Makes the tensors the network's parameters, all of one type.

    Args:
        network: from `build`, or any module.
        tensors: by the published names.
        where: the name of the file in messages.
        unused_globs: of tensors that this network leaves out on purpose (parts used only in training).
        mapped_from: the file or files that `read_state_dict` or `read_safetensors` mapped them from; their pages are
            released after the values are checked.
        described_in: the name of the network's configuration in messages.
        dtype: the type that the network computes in.
        loaded_globs: of the tensors to load now; all other tensors of the network stay as they are.

    Raises `BadInput` that names the first missing, extra or misshapen tensor and counts the others, or that names a
    tensor with values other than finite floating-point numbers.
    """
    required = check_tensors(network.state_dict(), tensors, where, unused_globs, described_in)
    files = [mapped_from] if isinstance(mapped_from, Path) else mapped_from or []
    regions = mapped_regions(*files)
    converted = {}
    for name in required:
        if not any(fnmatchcase(name, glob) for glob in loaded_globs):
            continue
        if not _finite(tensors[name]):
            raise BadInput(
                f"{where}: tensor {name} holds values that are not finite (NaN or infinity); expected numbers"
            )
        converted[name] = tensors[name].to(dtype)
        release_pages(tensors[name], regions)
    network.load_state_dict(converted, assign=True, strict=len(converted) == len(required))
    network.requires_grad_(False)
    register_network(network)


def check_tensors(
    required: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    where: str,
    unused_globs: Sequence[str] = (),
    described_in: str = "its config.yaml",
) -> Mapping[str, Tensor]:
    """Returns `required`, a network's tensors, if `tensors` has all of them and no others, in the right shapes.

    The other arguments are those of `load_into`. Values are not checked. Raises `BadInput` that names the first
    missing, extra or misshapen tensor, or one that holds no floating-point numbers where the network has them.
    """
    missing = [name for name in required if name not in tensors]
    if missing:
        longer_name = next((name for name in tensors if name.endswith(f".{missing[0]}")), None)
        prefix = longer_name.removesuffix(missing[0]) if longer_name else ""
        hint = f"; it has {longer_name}: take {prefix!r} off the names, and save it again" if longer_name else ""
        raise BadInput(f"{where} lacks tensor {missing[0]}{_more_note(missing)}, which {described_in} calls for{hint}")
    extra = [
        name for name in tensors if name not in required and not any(fnmatchcase(name, glob) for glob in unused_globs)
    ]
    if extra:
        raise BadInput(
            f"{where} has tensor {extra[0]}{_more_note(extra)}, which the network of {described_in} does not have"
        )
    misshapen = [name for name, value in required.items() if value.shape != tensors[name].shape]
    if misshapen:
        found, expected = tuple(tensors[misshapen[0]].shape), tuple(required[misshapen[0]].shape)
        raise BadInput(
            f"{where}: tensor {misshapen[0]} has shape {found}{_more_note(misshapen)}; "
            f"{described_in} and vocabulary call for {expected}"
        )
    # A network may count in whole numbers, as a batch norm does.
    without_floats = [
        name for name, value in required.items() if value.is_floating_point() > tensors[name].is_floating_point()
    ]
    if without_floats:
        raise BadInput(
            f"{where}: tensor {without_floats[0]} holds {tensors[without_floats[0]].dtype}; expected floating point"
        )
    return required


def _finite(tensor: Tensor) -> bool:
    """Returns whether all values are finite.

    One sum decides the usual case: a value that is not finite makes the sum so. As a sum may also overflow by itself, a
    second test follows then.
    """
    return bool(tensor.sum(dtype=torch.float32).isfinite()) or bool(tensor.isfinite().all())


def _more_note(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return "a single tensor"
    if value is None or (isinstance(value, (Mapping, list, tuple, str)) and not value):
        return "nothing (empty)"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
