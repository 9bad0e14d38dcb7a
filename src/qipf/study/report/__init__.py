"""A benchmark as one page: self-contained HTML that opens offline, from a store or from its tables alone.

The modules follow the data: `source` reads; `facts`, `ranking_view`, `severity`, `pictures`, `maps_view`, `details`,
`field_view` and `appendix` reduce what was measured to what a page shows, in that order; `page` writes it. The page of
a regression has other measures and is written by `numbers_page`.
"""

from qipf.study.report.page import write_report

__all__ = ["write_report"]
