"""Reads the list of a corpus, whatever program wrote it: one entry of a table for each format.

| format | what it is |
| --- | --- |
| `csv`, `tsv` | a table with a line of names; Hugging Face's metadata.csv, Common Voice's lists |
| `jsonl` | an object on each line: the lists of NeMo, FunASR and WeNet (data.list), Hugging Face's metadata.jsonl |
| `lhotse` | a cut set, .jsonl or .jsonl.gz |
| `kaldi` | a data directory: wav.scp, text, and maybe segments, utt2spk, utt2lang |
| `folder` | recordings with a.txt or a.lab beside a.wav, or one of the `layouts`; also .zip and .tar |
| `parquet` | the files of one split with the sound in a column, as Hugging Face has them |

A row that cannot be used is passed on with its line and the reason, and the reading goes on. Only the rows decide what
the corpus is, and not the files on the disk: the same list gives the same corpus on every machine. No audio is read
here.
"""

from workbench.evaluation.manifests.corpus import Bad, FoundCorpus, Wanted
from workbench.evaluation.manifests.reading import read_manifest

__all__ = ["Bad", "FoundCorpus", "Wanted", "read_manifest"]
