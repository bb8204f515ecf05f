"""The live page: server-rendered, with small scripts that came with it."""
