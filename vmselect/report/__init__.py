"""Charts, tables for notebooks, and self-contained HTML pages."""

from vmselect.report.charts import save_chart
from vmselect.report.notebook import to_html
from vmselect.report.page import render_page, write_page
from vmselect.report.ranking_charts import CHARTS, chart

__all__ = ["CHARTS", "chart", "render_page", "save_chart", "to_html", "write_page"]
