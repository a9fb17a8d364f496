"""The model families: how the project recognises their checkpoints, their options, and their parts on every runtime.

`family` has the descriptor, `table` the families of this project, `outside` finds those of other packages. The other
modules are the families' own. Nothing of a family is imported until it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from workbench.core.errors import BadInput, named_message_of
from workbench.families.family import Cell, Family, load
from workbench.families.table import BUILT_IN

__all__ = ["FAMILIES", "Cell", "Families", "Family", "family_of", "load"]


class Families(Mapping[str, Family]):
    """All families by name, in the order in which they are tried on a directory.

    Families of other packages are loaded once in a process, on first use. A look-up of one of this project's families
    does not load them.
    """

    def __init__(self) -> None:
        self._built_in = {family.name: family for family in BUILT_IN}
        self._all: Mapping[str, Family] = self._built_in
        self._refused: tuple[str, ...] = ()
        self._complete_now = False
        self._reading = False
        self._lock = threading.RLock()

    @property
    def refused(self) -> tuple[str, ...]:
        """One sentence for each family of another package that cannot be used."""
        self._complete()
        return self._refused

    def __getitem__(self, name: str) -> Family:
        return self._built_in[name] if name in self._built_in else self._complete()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._complete())

    def __len__(self) -> int:
        return len(self._complete())

    def _complete(self) -> Mapping[str, Family]:
        if not self._complete_now:
            with self._lock:  # a package that asks for the table while it is imported gets this project's families
                if not self._complete_now and not self._reading:
                    self._reading = True
                    self._add_external()
        return self._all

    def _add_external(self) -> None:
        from workbench.families.outside import read_outside

        external, self._refused = read_outside(self._built_in.values())
        families = sorted((*self._built_in.values(), *external), key=lambda family: family.fallback)
        self._all = {family.name: family for family in families}
        self._complete_now = True


FAMILIES = Families()


def family_of(directory: Path) -> Family:
    """Returns the family whose checkpoint the directory holds; raises `BadInput` if it holds none."""
    failed = []
    for family in FAMILIES.values():
        try:
            if family.recognises(directory):
                return family
        except Exception as error:
            if not family.package:
                raise
            failed.append(
                f"{family.title} of the package {family.package} failed to look at it: {named_message_of(error)}"
            )
    reasons = "".join(f" ({sentence})" for sentence in (*failed, *FAMILIES.refused))
    try:
        _explain(directory)
    except BadInput as error:
        if reasons:
            raise BadInput(f"{error}{reasons}") from error
        raise
    hints = dict.fromkeys(family.hint for family in FAMILIES.values() if family.hint)
    known = ", ".join(hints)
    raise BadInput(
        f"checkpoint directory {directory.name or directory} belongs to none of the families here: {known}{reasons}"
    )


def _explain(directory: Path) -> None:
    """Raises `BadInput` if a family can say what is wrong with a directory that no family recognises.

    Families of other packages come first: theirs look for files that the project's families do not know.
    """
    explained: set[str | None] = set()
    for family in sorted(FAMILIES.values(), key=lambda each: not each.package):
        if family.explain in explained:
            continue
        explained.add(family.explain)
        try:
            family.explain_directory(directory)
        except BadInput:
            raise
        except Exception:
            if not family.package:
                raise
