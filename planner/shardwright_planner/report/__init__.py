"""The report: one HTML file with the plan, its figures and its tables, which needs nothing but a browser."""

from shardwright_planner.report.page import render_page
from shardwright_planner.report.survey import Survey, survey

__all__ = ["Survey", "render_page", "survey"]
