"""A benchmark as one page: self-contained HTML that opens offline, from a store or from its tables alone.

The order of the modules is the order of the data: `source` reads, `summary`, `severity`, `details`, `pictures` and
`field_view` reduce what was measured to what a page shows, and `page` writes it.
"""

from qipf.study.report.page import write_report

__all__ = ["write_report"]
