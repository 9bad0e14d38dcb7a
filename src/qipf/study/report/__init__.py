"""Write the results of a benchmark as one self-contained HTML page, from a store or its tables.

`source` reads the results, the views select what a page shows, and `page` writes it from `template.html.j2` or, for a
study of the paper, `paper.html.j2`. The page for a regression model is rendered by `number_view`.
"""

from qipf.study.report.page import write_report

__all__ = ["write_report"]
