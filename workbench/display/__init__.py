"""Shows results in notebooks: fragments of HTML with tables, sounds and pictures, and bars of progress.

The classes of results call this room in their `_repr_html_`. It knows texts, numbers, arrays and figures, and no class
of results, no session and no model. `Plot`, `Sound` and `Sounds` are for notebooks that show something of their own,
`check_answer` for those with exercises.
"""

from __future__ import annotations

from workbench.display.exercises import check_answer
from workbench.display.pictures import Plot
from workbench.display.sound import Sound, Sounds

__all__ = ["Plot", "Sound", "Sounds", "check_answer"]
