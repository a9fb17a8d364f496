"""Transcripts that another program has written, as one more model of an evaluation."""

from workbench.evaluation.transcripts.results import add_results, match, transcript_files

__all__ = ["add_results", "match", "transcript_files"]
