"""The sample recordings of the workbench, and reference texts for one or several recordings.

It reads the list beside the samples and shows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.registry.sources import assets


@dataclass(frozen=True)
class Sample:
    """A sample recording and its text."""

    path: Path
    text: str
    speaker: str
    seconds: float
    licence: str
    source: str
    domain: str = ""  # what is said in it, as cards of models name it

    @property
    def credit(self) -> str:
        """Its author and licence."""
        return f"{self.speaker}; {self.source}; {self.licence}"


def read_samples(folder: Path | None = None) -> tuple[Sample, ...]:
    """Reads the samples in the folder's `samples.json`, by default the shipped ones; none if there is no list.

    Raises `BadInput` for a list that cannot be read.
    """
    folder = folder or assets() / "samples"
    listed = folder / "samples.json"
    if not listed.is_file():
        return ()
    try:
        entries = json.loads(listed.read_text(encoding="utf-8"))
        return tuple(
            Sample(
                folder / Path(entry["file"]).name,
                entry["text"],
                entry["speaker"],
                float(entry["seconds"]),
                entry["licence"],
                entry["source"],
                entry.get("domain", ""),
            )
            for entry in entries
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"the list of samples {listed.name} cannot be read: {error!r}") from error


def references(text: str, recordings: int) -> tuple[str | None, ...]:
    """Returns the reference text of each recording: the whole text for one recording, one line each for several.

    An empty text means that no reference is known; an empty line means the same for its recording. Raises `BadInput` if
    the number of lines differs from the number of recordings.
    """
    if not text.strip():
        return (None,) * recordings
    if recordings == 1:
        return (" ".join(text.split()),)
    lines = text.strip("\r\n").splitlines()
    if len(lines) != recordings:
        raise BadInput(
            f"there are {recordings} recordings and {counted(len(lines), 'line')} of reference "
            "text; expected one line for each recording, in their order, or none at all"
        )
    return tuple(line.strip() or None for line in lines)


def reference_text(samples: Sequence[Sample]) -> str:
    """Returns the reference text of these samples; `references` reads it."""
    return "\n".join(sample.text for sample in samples)


def samples_named(samples: Iterable[Sample], name: str, domains: Collection[str] = ()) -> list[Sample]:
    """Returns the sample with that file name, or all for `*`; raises `BadInput` if there is none.

    Args:
        domains: the domains of the models that will transcribe the samples, "" for a model without a domain. If every
            model has a domain, `*` means the samples of these domains, or all samples if there are none.
    """
    found = [sample for sample in samples if name in ("*", sample.path.name)]
    if not found:
        raise BadInput(f"there is no sample {name!r:.80}; reload the page")
    fitting = [sample for sample in found if sample.domain in domains]
    return found if name != "*" or "" in domains else fitting or found
