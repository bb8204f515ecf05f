"""The definition of a queue backend: one suite, run over every backend."""
