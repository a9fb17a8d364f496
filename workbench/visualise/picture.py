"""A picture of what a model does: layers of numbers on common axes, as plain values.

`workbench.visualise.run` makes pictures; `workbench.visualise.rendering` writes them to files; the page draws them in
the browser. This file knows no model and draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.plots.layers import Axis, Layer, Scale
from workbench.session.values import Token

__all__ = ["Axis", "Layer", "Picture", "Scale", "Token"]


def side_name(model: str, runtime: str, quantization: str | None, changes: tuple[str, ...]) -> str:
    """Returns a model and how it is computed, such as `demo/paraformer on pytorch dtype=bfloat16`."""
    return f"{model} on {' '.join(filter(None, (runtime, quantization, *changes)))}"


@dataclass(frozen=True, eq=False)
class Picture:
    """One view of one model on one runtime; or of two models or runtimes, with their difference."""

    view: str  # its name in `workbench.visualise.views.VIEWS`
    model: str
    runtime: str
    title: str
    sentence: str  # what one sees in it
    layers: tuple[Layer, ...]
    seconds: float | None = None  # length of the recording; None where there is none
    tokens: tuple[Token, ...] = ()  # what was written, with the times that the model knows
    notes: tuple[str, ...] = ()  # what the reader should know about how it came about
    code: str = ""  # the Python that makes it again
    quantization: str | None = None  # of the weights, where they are in a GGUF file
    changes: tuple[str, ...] = ()  # settings and options of this side alone, such as `dtype=bfloat16`

    @property
    def side(self) -> str:
        """The model and how it was computed, such as `demo/paraformer on gguf q8_0`."""
        return side_name(self.model, self.runtime, self.quantization, self.changes)

    def __getitem__(self, name: str) -> Layer:
        """Returns a layer by its name."""
        try:
            return next(layer for layer in self.layers if layer.name == name)
        except StopIteration:
            names = ", ".join(layer.name for layer in self.layers)
            raise KeyError(f"no layer {name!r} in this picture; it has {names}") from None

    def __repr__(self) -> str:
        return f"<Picture {self.view} of {self.side}: {', '.join(layer.name for layer in self.layers)}>"

    def _repr_html_(self) -> str:
        from workbench.visualise.display import picture_html

        return picture_html(self)

    def save(self, path: str | Path) -> Path:
        """Writes the picture to a file whose name ends in .png, .svg or .npz; an existing file is replaced.

        Raises `BadInput` for another ending, and for a place that cannot be written.
        """
        from workbench.visualise.rendering import write

        return write(self, path)

    def render(self, kind: str = "png") -> bytes:
        """Returns the bytes of a file of a kind: png, svg or npz."""
        from workbench.visualise.rendering import render

        return render(self, kind)
