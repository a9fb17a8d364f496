"""What an evaluation found, as one HTML file that needs nothing else, and as tables for other programs.

>>> from workbench import evaluation
>>> from workbench.evaluation import report
>>> report.write_report("results")            # results/report.html
>>> report.write_table(report.read_columns(evaluation.read("results")), "table.csv")

`columns` holds the results as arrays; `overview`, `confusions` and `extremes` compute what is shown; `page` writes it.
"""

from workbench.evaluation.report.columns import Columns, read_columns
from workbench.evaluation.report.exports import write_table
from workbench.evaluation.report.overview import Overview, overview
from workbench.evaluation.report.page import REPORT, page, write_report

__all__ = ["REPORT", "Columns", "Overview", "overview", "page", "read_columns", "write_report", "write_table"]
