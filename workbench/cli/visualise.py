"""`workbench visualise`: writes a picture of what a model does with a recording."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.cli.arguments.inputs import add_source
from workbench.cli.arguments.models import (
    add_flags,
    add_model,
    add_options,
    add_settings,
    chosen_options,
    chosen_settings,
)
from workbench.cli.sources import source_of
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.options import option_specs
from workbench.core.phrases import dimensions
from workbench.registry.registry import Registry
from workbench.visualise.options import ViewOptions

VIEW = option_specs(ViewOptions)


def add_visualise(parser: argparse.ArgumentParser, tasks: tuple[str, ...]) -> None:
    """Adds the arguments of the command.

    Args:
        tasks: those of the models that it takes.
    """
    files = parser.add_argument_group("input and output")
    add_source(files)
    files.add_argument(
        "--out", type=Path, metavar="FILE", help="picture.png, .svg or .npz; an existing file is replaced"
    )
    views = parser.add_argument_group("view")
    views.add_argument("--view", default="waveform", metavar="NAME", help="which view (default: %(default)s)")
    views.add_argument(
        "--list", action="store_true", help="write nothing; list the views of the model, and why it lacks others"
    )
    views.add_argument(
        "--against",
        metavar="SIDE",
        help="a second side, for both and their difference: gguf:q8_0, another runtime, another model",
    )
    add_flags(views, VIEW)
    add_model(parser)
    add_options(parser, tasks)
    add_settings(parser)


def visualise_file(parsed: argparse.Namespace, say: Callable[[str], None]) -> Iterator[str]:
    """Writes the picture and yields a line for each of its layers: name, kind and shape; notes go to `say`.

    Raises `BadInput` before anything is loaded for an unknown view, an option that it does not have, and another
    ending than .png, .svg or .npz.
    """
    from workbench.visualise.rendering import kind_of
    from workbench.visualise.run import split_options, visualise
    from workbench.visualise.views import VIEWS, available, find_view

    if parsed.list:
        with Registry() as registry:
            for name, reason in available(registry, parsed.model, parsed.runtime).items():
                yield f"{name}: {VIEWS[name].sentence}" if not reason else f"{name}: not for this model; {reason}"
        return
    if parsed.out is None:
        raise BadInput("no file is named for the picture; expected --out FILE.png, .svg or .npz")
    kind_of(parsed.out)
    settings = {**chosen_options(parsed), **chosen_settings(parsed)}
    split_options(find_view(parsed.view), settings)
    progress = ProgressLine()
    with Registry() as registry, source_of(parsed, registry.card(parsed.model), check=False) as source:
        progress.show(f"loading {parsed.model}")
        try:
            picture = visualise(
                source,
                parsed.model,
                parsed.runtime,
                parsed.view,
                against=parsed.against,
                registry=registry,
                on_progress=progress.fetching,
                **settings,
            )
        finally:
            progress.clear()
    picture.save(parsed.out)
    for note in picture.notes:
        say(f"{picture.view}: {note}")
    for layer in picture.layers:
        yield f"{layer.name}\t{layer.kind}\t{dimensions(layer.values.shape)}"
