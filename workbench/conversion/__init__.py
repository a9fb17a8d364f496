"""Makes GGUF files of checkpoint directories: one file per model in our layout, or FunASR's own layout.

`types` and `plan` say what a file holds and how large it is, a module per family plans it, `writer` writes it,
`command` is `workbench convert`, and `cache` runs that in another process and keeps what it made. The modules of the
families and the writer import torch and gguf; `cache`, `command`, `files`, `plan` and `types` do not until they must.
"""

from __future__ import annotations

LAYOUTS = ("workbench", "funasr")
