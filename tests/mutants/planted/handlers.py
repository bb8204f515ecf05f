"""Planted changes of what handlers can ask for: names, errors, again, forms, unique records, split outputs."""

from __future__ import annotations

from mutants.mutant import Mutant

_KEYS = "conformance/test_contract_record_keys.py"
_NAMED = "unit/test_named_handlers.py"
_FORM = "unit/test_extract_form.py"

MUTANTS = (
    Mutant(
        "SQLite keeps records whose key another task has",
        "queue/sqlite/settle.py",
        "if not key or _owns_digest(db, run, task, key)]",
        "if _owns_digest(db, run, task, key) or key]",
        _KEYS,
    ),
    Mutant(
        "Redis keeps records whose key another task has",
        "queue/redis/lua/settle.lua",
        "if one.keys == '' or is_unclaimed(run, number, one, at - one.records) then",
        "if one.keys == '' or is_unclaimed(run, number, one, at - one.records) or true then",
        _KEYS,
    ),
    Mutant(
        "in PostgreSQL a page that is dropped takes its keys with it",
        "queue/postgres/record_keys.py",
        "keyed = [outcome for outcome in keyed if (outcome.task, outcome.lease) not in dropped]",
        "keyed = list(keyed)",
        _KEYS,
    ),
    Mutant(
        "a late answer takes the keys of its records in PostgreSQL",
        "queue/postgres/record_keys.py",
        "JOIN leased l ON l.id = o.task AND l.lease + 0 = o.lease",
        "JOIN leased l ON l.id = o.task",
        _KEYS,
    ),
    Mutant(
        "records without a key are taken for the same",
        "worker/task/handler_output.py",
        "first.setdefault(key or at, (record, key))",
        "first.setdefault(key, (record, key))",
        "unit/test_unique_records.py",
    ),
    Mutant(
        "two pages that ask again for a URL are one task",
        "extract/links.py",
        "{parent if follow.again else ''}",
        "",
        _NAMED,
    ),
    Mutant(
        "pages can be asked for again for ever",
        "extract/links.py",
        "elif follow.again and again >= MAX_AGAIN:",
        "elif follow.again and again < 0:",
        _NAMED,
    ),
    Mutant(
        "the plain page counts as visited when it was for a certain handler",
        "extract/links.py",
        "if task.kind != PAGE or (options is not None and not options.is_plain):",
        "if options is not None and not options.is_plain:",
        _NAMED,
    ),
    Mutant(
        "an error handler is called before the last attempt",
        "worker/task/pipeline.py",
        "if error_handler is not None and is_last_attempt(attempt, cause, retry_after):",
        "if error_handler is not None:",
        _NAMED,
    ),
    Mutant(
        "of pages redirected to one error page only the first is handled",
        "worker/task/attempt.py",
        "return task.kind == PAGE and (response.status < 300 or is_unchanged)",
        "return task.kind == PAGE",
        _NAMED,
    ),
    Mutant(
        "fields that are disabled are sent",
        "extract/form_fields.py",
        "if is_own and not _is_disabled(node):",
        "if is_own:",
        _FORM,
    ),
    Mutant("a password is sent unencrypted", "extract/form.py", "        self._refuse_downgrade(url)\n", "", _FORM),
    Mutant(
        "a network of --allow-private holds metadata, too",
        "fetch/guard.py",
        "if not self.networks or special == METADATA or not _is_numeric(host):",
        "if not self.networks or not _is_numeric(host):",
        "unit/test_fetch_guard.py",
    ),
    Mutant(
        "what a page says becomes the name of a file as it is",
        "store/split_writer.py",
        'return _not_in_names.sub("-", text.lower()).strip("-")[:MAX_NAME] or NO_VALUE',
        "return text or NO_VALUE",
        "unit/test_store_split.py",
    ),
    Mutant(
        "an output is split into files without end",
        "store/split_writer.py",
        "if len(self._files) >= MAX_FILES:",
        "if len(self._files) < 0:",
        "unit/test_store_split.py",
    ),
    Mutant(
        "a traceback begins in shoal's own code",
        "worker/task/failure.py",
        "told = traceback.TracebackException(type(error), error, trace or error.__traceback__)",
        "told = traceback.TracebackException(type(error), error, error.__traceback__)",
        "unit/test_user_traceback.py",
    ),
)
