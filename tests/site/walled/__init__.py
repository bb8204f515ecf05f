"""A shop that gives block pages in twelve ways, and twelve kinds of pages that are odd but good."""
