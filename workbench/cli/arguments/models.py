"""The flags of commands that open a model: the model, its settings, and the options of all families.

The help describes the options that all models of a command have in common, and names those of single families, which
`workbench options` explains. The parser accepts all of them; whether the model has an option is checked later.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from workbench.core.options import ListeningOptions, OptionSpec, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SETTINGS
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE

ANY = ("transcribe", "generate", CONVERSE, "vad")  # tasks of all models
SHORT = {"quantization": ("-q",)}
WITH_THE_MODEL = ("quantization",)  # settings that choose the weights, as --model does
_LISTENING = {spec.name for spec in option_specs(ListeningOptions)}


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds --model, --runtime, and the settings that choose the weights."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        "-m",
        required=True,
        metavar="M",
        help="a model's id (see: workbench models), a checkpoint directory or a GGUF file",
    )
    group.add_argument(
        "--runtime",
        "-r",
        choices=tuple(RUNTIMES),
        help="where the model runs (default: gguf for a GGUF file, vllm for a server, otherwise pytorch)",
    )
    for name in WITH_THE_MODEL:
        _add_setting(group, SETTINGS[name])


def add_settings(parser: argparse.ArgumentParser, excluded: Collection[str] = WITH_THE_MODEL) -> None:
    """Adds the settings of all runtimes except `without`. Whether the runtime has a setting is checked later."""
    group = parser.add_argument_group(
        "engine", "How the model runs. Unset flags come from the model's card, else from the default."
    )
    for spec in SETTINGS.values():
        if spec.name not in excluded:
            _add_setting(group, spec)


def _add_setting(group: Any, spec: OptionSpec) -> None:
    having = [name for name, runtime in RUNTIMES.items() if spec.name in runtime.settings]
    where = "" if len(having) == len(RUNTIMES) else f"; on {' and '.join(having)}"
    flags = ["--" + spec.name.replace("_", "-"), *SHORT.get(spec.name, ())]
    text = help_of(replace(spec, help=spec.help + where))
    if spec.kind is bool:
        group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    metavar = None if spec.choices else _metavar(spec) if spec.kind is str else "N"
    group.add_argument(*flags, type=spec.kind, choices=spec.choices or None, metavar=metavar, help=text)


def add_options(
    parser: argparse.ArgumentParser, tasks: Sequence[str], chat: bool = False, excluded: Collection[str] = ()
) -> None:
    """Adds the options of all families.

    Args:
        tasks: the tasks of the command's models; the help describes the options that all of these have.
        chat: whether the command answers conversations, whose options are more.
        excluded: options that the command has flags of its own for.
    """
    classes = {
        name: family.chat_options_class if chat and family.chat_options_class else family.options_class
        for name, family in FAMILIES.items()
    }
    option_classes = [classes[family.name] for family in FAMILIES.values() if set(family.tasks) & set(tasks)]
    having = [{spec.name for spec in option_specs(each)} - {*excluded} for each in option_classes]
    common, any_of = set.intersection(*having), set.union(*having)
    listening = parser.add_argument_group("speech and segments")
    decoding = parser.add_argument_group("decoding")
    hidden = parser.add_argument_group("options of single models")  # argparse shows no group without a help text
    for spec in _specs((*option_classes, *classes.values())):
        if spec.name in excluded:
            continue
        group = hidden if spec.name not in common else listening if spec.name in _LISTENING else decoding
        _add_option(group, spec, visible=spec.name in common)
    more = [f"--{spec.name.replace('_', '-')}" for spec in _specs(option_classes) if spec.name in any_of - common]
    if more:
        parser.epilog = (
            f"Some models have more options: {', '.join(more)}. `workbench options MODEL` lists and explains "
            "those of a model."
        )


def add_flags(group: Any, specs: Sequence[OptionSpec]) -> None:
    """Adds a flag for each option, which `chosen_options` reads."""
    for spec in specs:
        _add_option(group, spec, visible=True)


def _add_option(group: Any, spec: OptionSpec, visible: bool) -> None:
    flag, dest = "--" + spec.name.replace("_", "-"), f"option_{spec.name}"
    text = help_of(spec) if visible else argparse.SUPPRESS
    if spec.kind is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, dest=dest, help=text)
    elif spec.kind is tuple:
        # One value per flag, so that it never takes the recordings that follow.
        several = f"{text}; separated by commas, and the flag may be repeated" if visible else text
        group.add_argument(flag, action="extend", type=words, default=None, dest=dest, metavar="WORD,...", help=several)
    else:
        kind = path_of if spec.file else spec.kind
        group.add_argument(flag, type=kind, default=None, dest=dest, metavar=_metavar(spec), help=text)


def path_of(text: str) -> str:
    """Returns a path as it was typed; argparse refuses an empty one, as of a variable of the shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def words(text: str) -> list[str]:
    """Returns the items of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def help_of(spec: OptionSpec) -> str:
    """Returns the help text of an option, with its limits and its default in brackets."""
    usual = "" if spec.default is None or spec.default in ("", ()) else f"default: {_default_text(spec.default)}"
    return spec.help_with(spec.limits, usual)


def _default_text(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _metavar(spec: OptionSpec) -> str:
    if spec.choices:
        return "{" + ",".join(spec.choices) + "}"
    return "FILE" if spec.file else spec.name.partition("_per_")[0].split("_")[-1].upper()


def _specs(classes: Sequence[type[Any]]) -> list[OptionSpec]:
    """Returns the options of some families, each once."""
    found: dict[str, OptionSpec] = {}
    for options_class in classes:
        for spec in option_specs(options_class):
            known = found.setdefault(spec.name, spec)
            if known.choices != spec.choices:  # each model names its own choices in the error for another value
                found[spec.name] = replace(known, choices=())
    return list(found.values())


def chosen_settings(parsed: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the session that the user set, by name."""
    return {name: getattr(parsed, name) for name in SETTINGS if getattr(parsed, name, None) is not None}


def chosen_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the model that the user set, by name."""
    prefix = "option_"
    return {
        name[len(prefix) :]: value
        for name, value in vars(parsed).items()
        if name.startswith(prefix) and value is not None
    }
