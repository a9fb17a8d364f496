"""Makes GGUF files of checkpoint directories: one file per model in our layout, or FunASR's own layout.

`plan` says what a file holds and how large it is, one module per family plans it, `writer` writes it, and `command` is
`workbench convert`. `workbench.artifacts` runs a conversion in another process and keeps the file. The modules of the
families and the writer import torch and gguf; `command`, `files` and `plan` import them only when they need them.
"""

from __future__ import annotations

LAYOUTS = ("workbench", "funasr")
