"""What a run found: tables, figures, and a page to browse."""

from fei.bench.report._report import REPORT, write_report

__all__ = ["REPORT", "write_report"]
