"""Converts checkpoint directories to GGUF files: one file per model in this project's layout, or FunASR's own layout.

`plan` describes the contents and size of a file, one module per family makes the plan, `writer` writes the file, and
`command` is `workbench convert`. `workbench.artifacts` runs a conversion in another process and stores the file. The
modules of the families and the writer import torch and gguf; `command`, `files` and `plan` import them only when
needed.
"""

from __future__ import annotations

LAYOUTS = ("workbench", "funasr")
