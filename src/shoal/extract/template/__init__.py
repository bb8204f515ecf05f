"""Templates: scrapers written in YAML, and the small ones made for lists of addresses."""

from __future__ import annotations

from shoal.extract.template.fill import Fill
from shoal.extract.template.listing import from_fields, summary
from shoal.extract.template.model import Template
from shoal.extract.template.parse import parse
from shoal.extract.template.problem import Problem, TemplateError
from shoal.extract.template.scraper import TemplateScraper

__all__ = [
    "Fill",
    "Problem",
    "Template",
    "TemplateError",
    "TemplateScraper",
    "from_fields",
    "parse",
    "summary",
]
