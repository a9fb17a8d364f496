"""Results of an evaluation that several test files read."""

from __future__ import annotations

import pytest

from tests.support.made_evaluation import made_columns
from workbench.evaluation.report.columns import Columns


@pytest.fixture(scope="module")
def columns() -> Columns:
    return made_columns()
