"""Embeddings made elsewhere: read from files that users give, checked, described, and written.

>>> embedding = read_embedding(Path("speech.safetensors"))
>>> embedding.values.shape, embedding.dtype, embedding.notes
((38, 256), 'bfloat16', ())
>>> check_embeddings([embedding], hidden=256, room=900, where="demo/funasr-nano")

The parts: `payload` takes a path, bytes or base64, `read` tells the format and chooses a tensor, `numpy_files`,
`torch_files` and `tensor_files` know one format each, `embedding` is what comes of them, `check` holds it against a
model's measures, `write` writes it. Arrays and bytes; no models, and no PyTorch.
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
