"""The models that the page offers, and the files that users may name in options: only files that they uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.registry.registry import Registry
from workbench.serving import offers as served
from workbench.serving.offers import SEPARATOR as SEPARATOR
from workbench.serving.offers import ModelOnRuntime as ModelOnRuntime
from workbench.serving.offers import RuntimeOffer as RuntimeOffer
from workbench.serving.offers import check_options_known as check_options_known
from workbench.serving.offers import chosen_offers as chosen_offers
from workbench.serving.offers import neural_choices as neural_choices
from workbench.serving.offers import offers as offers
from workbench.serving.offers import runtime_title as runtime_title
from workbench.serving.offers import vad_choices as vad_choices


def options_for(registry: Registry, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the options that the model has, checked; see `workbench.serving.offers.options_for`."""
    return served.options_for(registry, model, options, _is_upload)


def _is_upload(path: Any) -> bool:
    """Returns whether a value is the path of a file in the folder of the page's uploads."""
    from gradio.utils import get_upload_folder

    try:
        return isinstance(path, str) and Path(path).resolve().is_relative_to(Path(get_upload_folder()).resolve())
    except (OSError, ValueError, RuntimeError):
        return False
