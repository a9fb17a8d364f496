"""The judgement of a candidate: clean spreads, traces and dumps, inner stages, an earlier run."""
