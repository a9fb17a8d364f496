"""Makes the directories that vLLM loads: a checkpoint in Hugging Face's form, whose speech part uses this project's
classes.

`directory` describes and writes such a directory, `language` plans a language model's tensors, and one module per
family plans the whole. `workbench.artifacts` runs this in another process and stores the directory. These modules
import torch and transformers.
"""
