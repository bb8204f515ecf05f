"""For tests of scrapers: handlers run on pages that were written down or saved, without a queue or the network."""

from shoal.testing.handle import Handled, handle
from shoal.testing.saved_pages import Crawled, SavedPages

__all__ = ["Crawled", "Handled", "SavedPages", "handle"]
