"""SHOW: charts as data and then as drawing, the notebook's table, and the report page."""

from vmselect.report.charts import CHARTS, chart
from vmselect.report.drawing import save_chart
from vmselect.report.notebook import to_html
from vmselect.report.page import render_page, write_page

__all__ = ["CHARTS", "chart", "render_page", "save_chart", "to_html", "write_page"]
