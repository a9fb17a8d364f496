"""Visualise: pictures of what a model does with a recording, on every runtime.

>>> import workbench
>>> picture = workbench.visualise("talk.wav", model="demo/paraformer", view="cif")
>>> picture.save("cif.svg")

`views` is the table of views, `builders` makes their layers, `run` opens models, `rendering` writes files, `picture`
has the values. The module itself can be called: it is `workbench.visualise.run.visualise`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that can be called, because `workbench.visualise` is both a function and a package."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Returns a picture; see `workbench.visualise.run.visualise`."""
        from workbench.visualise.run import visualise

        return visualise(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
