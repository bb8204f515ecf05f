"""Planted mistakes in what is remembered of failing URLs, and in where lists come from."""

from __future__ import annotations

from mutants.mutant import Mutant

_CONTRACT = "conformance/test_contract_failing.py"

MUTANTS = (
    Mutant(
        "a form that fails is held against the page at its URL",
        "core/failing.py",
        'options.method == "GET" and options.body is None',
        'options.method == "GET"',
        "unit/test_failing.py",
    ),
    Mutant(
        "on SQLite a success forgets nothing",
        "queue/sqlite/settle.py",
        "            failing.forget_done(db, self.went_well)\n",
        "",
        _CONTRACT,
    ),
    Mutant(
        "on Redis a dead letter that is moved counts as a new failure",
        "queue/redis/lua/items.lua",
        "if not ended then  -- else",
        "if true then  -- else",
        _CONTRACT,
    ),
    Mutant(
        "on PostgreSQL a dead letter that is moved counts as a new failure",
        "queue/postgres/schema/0001/11_import.sql",
        " SET shoal.importing = 'on'",
        "",
        _CONTRACT,
    ),
    Mutant(
        "a line that a crashed attempt has added, and that failed since, is taken for one that is left out",
        "runs/list_reader.py",
        "if not is_retry or not failing:",
        "if True:",
        "unit/test_list_reader.py",
    ),
    Mutant(
        "a link in a folder of saved pages leads out of it",
        "fetch/folder.py",
        "if not path.is_relative_to(self._root):",
        "if False:",
        "unit/test_saved_folder.py",
    ),
    Mutant(
        "rows of a table that changed take the place of those that a run began with",
        "commands/row_source.py",
        "if fresh or not path.exists():",
        "if True:",
        "unit/test_row_source.py",
    ),
    Mutant(
        "a password of a database is accepted on the command line",
        "sources/sql.py",
        'if parts.password is not None or "password" in parse_qs(parts.query):',
        'if "password" in parse_qs(parts.query):',
        "unit/test_row_source.py",
    ),
)
