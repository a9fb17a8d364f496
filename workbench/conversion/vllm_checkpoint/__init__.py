"""Makes the directories that vLLM loads: a checkpoint in Hugging Face's form, its speech half under our own classes.

`directory` says what one holds and writes it, `language` plans a language model's tensors, and one module per family
plans the whole. `workbench.artifacts` runs that in another process and keeps the directory. These modules import torch
and transformers.
"""

from __future__ import annotations

FAMILIES = ("funasr_nano", "fireredasr", "causal_lm")
"""Those that vLLM serves; each is a module here, with the function `plan`."""
