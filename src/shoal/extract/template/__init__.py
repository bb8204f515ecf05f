"""Templates: scrapers written in YAML, and the small ones made for lists of URLs."""

from __future__ import annotations

from shoal.extract.template.fill_rates import FillRates
from shoal.extract.template.list_columns import refuse_unknown_columns, with_columns
from shoal.extract.template.model import Template
from shoal.extract.template.parse import parse
from shoal.extract.template.problem import TemplateError, TemplateProblem
from shoal.extract.template.scraper import TemplateScraper
from shoal.extract.template.url_list import from_fields, summary

__all__ = [
    "FillRates",
    "Template",
    "TemplateError",
    "TemplateProblem",
    "TemplateScraper",
    "from_fields",
    "parse",
    "refuse_unknown_columns",
    "summary",
    "with_columns",
]
