"""The demo web site: a small bookshop with odd corners, served by the standard library alone."""
