"""A web site whose pages are made by scripts, and pages that try everything a browser lets them."""
