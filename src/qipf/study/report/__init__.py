"""A benchmark as one page: self-contained HTML that opens offline, from a store or its tables.

`source` reads; the views and `severity` reduce what was measured to what a page shows; `page` writes it, from
`template.html.j2` or, for a study of the paper, `paper.html.j2`. A regression has the page of `number_view`.
"""

from qipf.study.report.page import write_report

__all__ = ["write_report"]
