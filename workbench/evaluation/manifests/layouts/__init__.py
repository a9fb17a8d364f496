"""The layouts of single corpora, one file for each, as people download them.

A `TranscriptList` is a file that names recordings and their texts in a form of its own. `vctk` finds the transcripts of
a corpus whose recordings and texts lie in two folders, and `stm` reads texts with times.
"""

from workbench.evaluation.manifests.layouts import aishell, ljspeech, magicdata
from workbench.evaluation.manifests.layouts.transcript_list import TranscriptList

TRANSCRIPT_LISTS: tuple[TranscriptList, ...] = (
    aishell.AISHELL_1,
    aishell.AISHELL_2,
    aishell.AISHELL_3,
    magicdata.MAGICDATA,
    ljspeech.LJSPEECH,
)
