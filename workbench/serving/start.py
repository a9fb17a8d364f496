"""What a server does first, before it starts threads and other processes."""

from __future__ import annotations

import os

from workbench.audio.read import MINUTES_VARIABLE
from workbench.serving.admission.limits import Limits
from workbench.system.endings import remove_leftovers
from workbench.system.memory import map_large_blocks, use_one_heap
from workbench.system.processors import share_processors


def prepare_process(limits: Limits) -> None:
    """Makes this process hold little memory, removes what killed programs left behind, and limits recordings.

    The sessions of the server inherit two things by the environment: the limit, and how their threads wait
    (`share_processors`), because several sessions compute at the same time.
    """
    use_one_heap()
    map_large_blocks()
    remove_leftovers()
    share_processors(os.environ)
    os.environ[MINUTES_VARIABLE] = str(limits.audio_minutes)
