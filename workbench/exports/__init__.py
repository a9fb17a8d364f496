"""What leaves the workbench: transcripts as text, subtitles, JSON and tables, as the model gave them or as edited.

>>> FORMATS["srt"].extension, FORMATS["json"].several
('srt', True)
"""

from workbench.text.editing import TIME, edited, retold
from workbench.text.exports import FORMATS, Format, find_format
from workbench.text.subtitles import Cue, cues

__all__ = ["FORMATS", "TIME", "Cue", "Format", "cues", "edited", "find_format", "retold"]
