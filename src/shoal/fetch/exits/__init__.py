"""Exits: named ways by which requests leave: directly, or through one of several proxies."""
