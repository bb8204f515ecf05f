"""Outline: what kinds of pages a site has and how they are read, worked out from a few of its pages."""

from shoal.extract.outline.site import SiteOutline, SiteSample, item_group, outline_site

__all__ = ["SiteOutline", "SiteSample", "item_group", "outline_site"]
