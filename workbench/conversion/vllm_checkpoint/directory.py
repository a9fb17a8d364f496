"""The directory that vLLM loads: describes its contents, and writes all of it or nothing.

`config.json` is the language model's own plus the speech part's entries. The tokenizer has one more special token,
which marks the speech's position in a prompt. This file knows no family.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, write_safetensors
from workbench.core.progress import OnProgress
from workbench.families.language.directory import VLLM_FORMAT, VLLM_SECTION, LanguageConfig, LanguageTokenizer
from workbench.formats.json_files import read_json_file
from workbench.system.atomic_files import UNFINISHED, check_directory, check_room, explained_file_errors

WEIGHTS = "model.safetensors"
SHARD_BYTES = 5 << 30  # larger weights become several files


@dataclass(frozen=True, eq=False)
class VllmCheckpoint:
    """The contents of one directory."""

    family: str
    language: LanguageConfig  # its directory has the configuration, generation_config.json and the tokenizer
    tensors: Sequence[StoredTensor]
    where: str  # the name of the tensors' source in messages
    architecture: str | None = None  # the class in vLLM; None for the language model's own
    config: Mapping[str, Any] = field(default_factory=dict)  # more entries of config.json
    whole_config: bool = False  # these are all of its entries, and none are the language model's own
    tokenizer: LanguageTokenizer | None = None  # None for that of the language model's directory
    # More entries of config.json's `speech_workbench`, besides the family.
    section: Mapping[str, Any] = field(default_factory=dict)
    special_tokens: Sequence[str] = ()  # added to the tokenizer if missing
    preprocessor: Mapping[str, Any] = field(default_factory=dict)  # preprocessor_config.json; no file if empty
    chat_template: str | None = None  # None for the language model's own
    files: Mapping[str, bytes] = field(default_factory=dict)  # other files by name, which may have a folder
    sources: Sequence[Path] = ()  # the directories of its sources, which may be outside the checkpoint's directory


def write_directory(model: VllmCheckpoint, out: Path, on_progress: OnProgress | None = None) -> None:
    """Writes the directory under the name `out`, which must be new or an empty directory.

    It is written beside `out` and renamed at the end. If `on_progress` or anything else raises an error, nothing
    remains. Raises `BadInput` and `Unavailable` for a path that cannot be written to, and `BadInput` for tensors with
    values that are not finite.
    """
    check_directory(out)
    total = sum(tensor.nbytes for tensor in model.tensors)
    check_room(out, total, "make room there")
    with explained_file_errors(out), _unfinished(out) as folder:
        _write_texts(model, folder)
        written_bytes = 0

        def on_written(tensor: StoredTensor, nbytes: int) -> None:
            nonlocal written_bytes
            written_bytes += nbytes
            if on_progress is not None:
                on_progress(written_bytes / max(total, 1), f"writing {tensor.name} of {out.name}")

        _write_weights(model, folder, on_written)
        if out.is_dir():
            out.rmdir()
        folder.replace(out)


@contextlib.contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    folder = out.with_name(f".{out.name}.{secrets.token_hex(6)}{UNFINISHED}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_weights(model: VllmCheckpoint, folder: Path, on_written: Any) -> None:
    shards = _shards(model.tensors)
    if len(shards) == 1:
        write_safetensors(shards[0], folder / WEIGHTS, model.where, on_written)
        return
    places: dict[str, str] = {}
    stem, suffix = Path(WEIGHTS).stem, Path(WEIGHTS).suffix
    for number, shard in enumerate(shards, 1):
        name = f"{stem}-{number:05d}-of-{len(shards):05d}{suffix}"
        write_safetensors(shard, folder / name, model.where, on_written)
        places |= {tensor.name: name for tensor in shard}
    total = sum(tensor.nbytes for tensor in model.tensors)
    _write_json(folder / f"{WEIGHTS}.index.json", {"metadata": {"total_size": total}, "weight_map": places})


def _shards(tensors: Sequence[StoredTensor]) -> list[list[StoredTensor]]:
    shards: list[list[StoredTensor]] = [[]]
    size = 0
    for tensor in tensors:
        if shards[-1] and size + tensor.nbytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.nbytes
    return shards


def _write_texts(model: VllmCheckpoint, folder: Path) -> None:
    language = model.language.directory
    tokenizer = model.tokenizer or LanguageTokenizer.read(language)
    tokenizer.save(folder, model.special_tokens)
    if model.chat_template is not None:
        (folder / "chat_template.jinja").write_text(model.chat_template, encoding="utf-8")
    config = ({} if model.whole_config else read_json_file(language / "config.json")) | dict(model.config)
    if model.architecture is not None:
        config["architectures"] = [model.architecture]
        ids = {token: tokenizer.id_of(token) for token in model.special_tokens}
        config[VLLM_SECTION] = {"format": VLLM_FORMAT, "family": model.family, "token_ids": ids, **model.section}
    _write_json(folder / "config.json", config)
    generation = language / "generation_config.json"
    if generation.is_file():
        (folder / generation.name).write_bytes(generation.read_bytes())
    else:
        pad = {} if model.language.pad_id is None else {"pad_token_id": model.language.pad_id}
        _write_json(folder / generation.name, {"eos_token_id": list(model.language.stop_ids), **pad})
    if model.preprocessor:
        _write_json(folder / "preprocessor_config.json", model.preprocessor)
    for name, content in model.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
