"""Reads a FunASR checkpoint directory: the files that it names, and its configuration.

Every family that FunASR publishes uses it. It opens text files only; a runtime opens the weights. Format:
`configuration.json` (ModelScope) lists files in `file_path_metas`, which are merged over `config.yaml`, or over the
file that it names instead; without it, the usual file names are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from workbench.audio.frontend import FrontendConfig
from workbench.core.errors import BadInput
from workbench.formats.json_files import read_json_file
from workbench.formats.yaml_files import read_yaml
from workbench.system.folders import is_file

USUAL_FILES = {
    "am.mvn": ("frontend_conf", "cmvn_file"),
    "tokens.txt": ("tokenizer_conf", "token_list"),
    "tokens.json": ("tokenizer_conf", "token_list"),  # takes precedence if there are both
    "seg_dict": ("tokenizer_conf", "seg_dict_file"),
    "bpe.model": ("tokenizer_conf", "bpemodel"),
}
"""The place of each usual file in the configuration, if there is no `configuration.json`."""

USUAL_WEIGHTS = ("model.pt", "model.safetensors")
"""The names of the weights' file; FunASR itself reads the first one alone."""

YAML = "config.yaml"
"""The name of the configuration, where `configuration.json` names no other."""

FRONTENDS = ("WavFrontend", "wav_frontend", "WavFrontendOnline")
"""FunASR's names of its filter bank; the last one computes the same features in pieces."""


@dataclass(frozen=True)
class FunasrCheckpoint:
    """A checkpoint directory and its merged configuration; file entries are absolute paths or None."""

    directory: Path
    config: Mapping[str, Any]
    weights: Path
    configuration: Path  # the YAML file that `config` was read from

    @property
    def described_in(self) -> str:
        """The name of the configuration in messages, such as `demo-sensevoice/config.yaml`."""
        return f"{self.directory.name}/{self.configuration.name}"

    @property
    def model(self) -> str:
        """The model class that the configuration names, such as SenseVoiceSmall."""
        return str(self.config.get("model", ""))

    def section(self, name: str) -> Mapping[str, Any]:
        """Returns a mapping of the configuration; empty if the file has none."""
        section = self.config.get(name) or {}
        if not isinstance(section, Mapping):
            raise BadInput(f"{name} in {self.described_in} is {type(section).__name__}; expected a mapping")
        return section

    def frontend(self) -> FrontendConfig:
        """Returns the front end; raises `BadInput` for one that is not FunASR's filter bank, and for `normalize`."""
        where = self.described_in
        name = self.config.get("frontend")
        if name is not None and name not in FRONTENDS:
            raise BadInput(f"frontend in {where} is {name!r:.80}; only {', '.join(FRONTENDS)} are supported")
        normalize = self.config.get("normalize")
        if normalize is not None:
            raise BadInput(f"normalize in {where} is {normalize!r:.80}; only normalisation by a CMVN file is supported")
        section = self.section("frontend_conf")
        try:
            return FrontendConfig.from_yaml(section)
        except BadInput as error:  # it names the key
            raise BadInput(f"{self.described_in}: {error}") from error

    def file(self, section: str, key: str) -> Path | None:
        """Returns the path that `section.key` names, or None."""
        value = self.section(section).get(key)
        if value in (None, "", "null"):
            return None
        if not isinstance(value, str):
            raise BadInput(f"{section}.{key} in {self.described_in} is {value!r:.80}; expected the name of a file")
        path = self.directory / value
        if not is_file(path):
            raise BadInput(
                f"{self.directory.name} names {section}.{key} = {value:.80}, and there is no such file in it"
            )
        return path


def is_funasr_directory(directory: Path, models: tuple[str, ...]) -> bool:
    """Returns whether the directory's configuration names one of these model classes. Never raises an error."""
    try:
        return str(read_yaml(configuration_file(directory)).get("model", "")) in models
    except BadInput:
        return False


def explain_directory(directory: Path) -> None:
    """Raises `BadInput` if the directory has a FunASR configuration that is damaged or names an unknown model.

    It returns if there is no configuration, and for FireRedASR's directories, which have one too.
    """
    if not configuration_file(directory).is_file() or (directory / "model.pth.tar").is_file():
        return
    from workbench.families import FAMILIES

    checkpoint = read_checkpoint(directory)
    model = checkpoint.model or "no model"
    known = ", ".join(family.title for family in FAMILIES.values())
    raise BadInput(f"{checkpoint.described_in} names {model}, which belongs to none of the families here: {known}")


def read_checkpoint(directory: str | Path, weights: Path | None = None) -> FunasrCheckpoint:
    """Reads the configuration and files of a FunASR directory.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if the directory, its configuration or its weights are missing or unreadable.
    """
    directory = Path(directory).resolve()
    if not directory.is_dir():
        raise BadInput(f"there is no checkpoint directory {directory}")
    metas = _file_metas(directory)
    configuration = _configuration(directory, metas)
    if not configuration.is_file():
        raise BadInput(
            f"checkpoint directory {directory.name} has no config.yaml; a FunASR checkpoint needs one beside model.pt"
        )
    config = read_yaml(configuration)
    if metas:
        _merge(config, _existing_files(metas, directory))
        _check_cmvn(metas, config, directory)
    else:
        for name, (section, key) in USUAL_FILES.items():
            if (directory / name).is_file():
                _merge(config, {section: {key: name}})
    return FunasrCheckpoint(directory, config, weights or _find_weights(directory, config), configuration)


def configuration_file(directory: Path) -> Path:
    """Returns the place of a directory's configuration, whether or not it exists.

    Raises `BadInput` if `configuration.json` is damaged.
    """
    return _configuration(directory, _file_metas(directory))


def _configuration(directory: Path, metas: Mapping[str, Any]) -> Path:
    """Returns the YAML file that `configuration.json` names, if it is there, else `config.yaml`."""
    name = metas.get("config")
    if isinstance(name, str) and name and is_file(directory / name):
        return directory / name
    return directory / YAML


def _find_weights(directory: Path, config: Mapping[str, Any]) -> Path:
    name = config.get("init_param")
    named = directory / name if isinstance(name, str) and is_file(directory / name) else None
    # A training writes there the path of the weights that it began with, not of those that it made.
    outside = named is not None and not named.parent.resolve().is_relative_to(directory)
    if named is not None and not outside:
        return named
    for usual in USUAL_WEIGHTS:
        if (directory / usual).is_file():
            return directory / usual
    trained = sorted(path.name for path in directory.glob("model.pt.*") if path.is_file())
    if named is not None and not trained:
        return named
    hint = f"; rename one of {', '.join(trained[:4])}" if trained else ""
    expected = " or ".join(USUAL_WEIGHTS)
    raise BadInput(f"checkpoint directory {directory.name} has no weights; expected {expected} in it{hint}")


def _file_metas(directory: Path) -> dict[str, Any]:
    path = directory / "configuration.json"
    if not path.is_file():
        return {}
    metas = read_json_file(path).get("file_path_metas", {})
    if not isinstance(metas, dict):
        return {}
    _check_inside(metas, directory)
    return metas


def _check_inside(metas: Mapping[str, Any], directory: Path) -> None:
    """Raises `BadInput` for a name that leads out of the directory: a checkpoint must not read its user's other files.

    FunASR writes names relative to the directory only.
    """
    for value in metas.values():
        if isinstance(value, Mapping):
            _check_inside(value, directory)
        elif isinstance(value, str) and _leads_outside(value):
            raise BadInput(
                f"{directory.name}/configuration.json names the file {value:.80}, which is outside the directory; copy "
                "the file into it, and write its name there"
            )


def _leads_outside(name: str) -> bool:
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    return any(path.anchor or ".." in path.parts for path in kinds)


def _check_cmvn(metas: Mapping[str, Any], config: Mapping[str, Any], directory: Path) -> None:
    """Raises `BadInput` if the CMVN file that `configuration.json` names is missing: features would go on without CMVN.

    FunASR's training copies that file without those that it names, and writes their paths into `config.yaml`.
    """
    frontend, merged = metas.get("frontend_conf"), config.get("frontend_conf")
    name = frontend.get("cmvn_file") if isinstance(frontend, Mapping) else None
    used = merged.get("cmvn_file") if isinstance(merged, Mapping) else None
    if isinstance(name, str) and name and not (isinstance(used, str) and is_file(directory / used)):
        raise BadInput(
            f"{directory.name}/configuration.json names frontend_conf.cmvn_file = {name:.80}, and there is no such "
            "file beside it; copy it from where the checkpoint was published, as the model needs its CMVN"
        )


def _existing_files(metas: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Returns the tree with only the leaves whose file exists; the original ignores the others too."""
    files: dict[str, Any] = {}
    for key, value in metas.items():
        if isinstance(value, Mapping):
            files[key] = _existing_files(value, directory)
        elif isinstance(value, str) and value and key != "config" and is_file(directory / value):
            files[key] = value
    return files


def _merge(target: dict[str, Any], source: Mapping[str, Any]) -> None:
    for key, value in source.items():
        if isinstance(value, Mapping):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            _merge(target[key], value)
        else:
            target[key] = value
