"""Embeddings from outside: read from users' files, checked, described, and written.

>>> embedding = read_embedding(Path("speech.safetensors"))
>>> embedding.values.shape, embedding.dtype, embedding.notes
((38, 256), 'bfloat16', ())
>>> check_embeddings([embedding], hidden=256, room=900, where="demo/funasr-nano")

The parts: `payload` takes a path, bytes or base64; `read` detects the format and chooses a tensor; `numpy_files`,
`torch_files` and `tensor_files` know one format each; `embedding` is the result; `check` compares it with a model's
dimensions; `write` writes it. All work on arrays and bytes, without models and without PyTorch.
"""

from workbench.embeddings.check import check_embeddings
from workbench.embeddings.embedding import Embedding, embedding_of
from workbench.embeddings.payload import LIMIT, as_base64
from workbench.embeddings.read import ENCODINGS, SeveralTensors, TensorEntry, read_embedding
from workbench.embeddings.write import write_embedding

__all__ = [
    "ENCODINGS",
    "LIMIT",
    "Embedding",
    "SeveralTensors",
    "TensorEntry",
    "as_base64",
    "check_embeddings",
    "embedding_of",
    "read_embedding",
    "write_embedding",
]
