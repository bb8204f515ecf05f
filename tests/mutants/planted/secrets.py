"""Planted changes of what keeps secrets, tokens and keys where they belong."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a task in a shared queue chooses a secret",
        "control/secret_policy.py",
        "        self._are_tasks_own = sent is None and settings.state_file is not None",
        "        self._are_tasks_own = sent is None",
        "unit/test_secret_policy.py",
    ),
    Mutant(
        "code is led by a task to show any secret to any host",
        "control/secret_policy.py",
        "not self._is_template and origin in self._believed_origins",
        "not self._is_template",
        "unit/test_secret_policy.py",
    ),
    Mutant(
        "headers of a machine go where a stranger's template starts",
        "control/secret_policy.py",
        '        self.shows_headers = not self._is_template or _is_from_queue(settings, "header")',
        "        self.shows_headers = True",
        "unit/test_secret_policy.py",
    ),
    Mutant(
        "the queue says where a run of this machine starts",
        "launch/request_options.py",
        "scraper.start if start is None else start",
        "scraper.start",
        "unit/test_secret_policy.py",
    ),
    Mutant(
        "a shared secret needs no seal",
        "control/signing_key.py",
        "not hmac.compare_digest(seal.encode(), _seal(value, url).encode())",
        "not seal",
        "unit/test_signing_key.py",
    ),
    Mutant(
        "a seal fits every URL",
        "control/signing_key.py",
        'b"webhook\\0" + url.encode("utf-8", "surrogatepass")',
        'b"webhook\\0"',
        "unit/test_signing_key.py",
    ),
    Mutant(
        "a run names the id that its key is derived from",
        "control/webhooks.py",
        "id=run_hook_id(run, index), made_by",
        "made_by",
        "unit/test_signing_key.py",
    ),
    Mutant(
        "all hooks of a run have one key",
        "control/webhooks.py",
        "{run.created_at}/{index}",
        "{run.created_at}",
        "unit/test_signing_key.py",
    ),
    Mutant(
        "whoever names the queue gets the token",
        "config/queue_token.py",
        "_is_given(settings, given_by) and _is_given(settings, named_by)",
        "_is_given(settings, given_by)",
        "unit/test_queue_token.py",
    ),
    Mutant(
        "a token for one server goes to all",
        "config/queue_token.py",
        "bound is not None and bound == server",
        "bound is not None",
        "unit/test_queue_token.py",
    ),
    Mutant(
        "results are looked for on any server",
        "runs/result_location.py",
        "_servers(there.netloc, theirs) != _servers(ours.netloc, words) or ",
        "",
        "unit/test_result_location.py",
    ),
    Mutant(
        "results are looked for in any file",
        "runs/result_location.py",
        'path.is_relative_to(folder) and "?" not in file',
        '"?" not in file',
        "unit/test_result_location.py",
    ),
)
