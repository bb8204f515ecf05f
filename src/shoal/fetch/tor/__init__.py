"""Tor: a tor of this process's own, from its program to its circuits."""
