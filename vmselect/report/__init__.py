"""SHOW: tables for the terminal and the notebook, charts, and the report page."""

from vmselect.report.charts import CHARTS, chart
from vmselect.report.drawing import save_chart
from vmselect.report.notebook import to_html
from vmselect.report.page import render_page, write_page
from vmselect.report.tables import estimate_table, excluded_table, findings_table, ranking_table

__all__ = [
    "CHARTS", "chart", "estimate_table", "excluded_table", "findings_table", "ranking_table", "render_page", "save_chart",
    "to_html", "write_page",
]  # fmt: skip
