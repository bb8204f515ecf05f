"""Planted changes of sessions that the fleet shares."""

from __future__ import annotations

from mutants.mutant import Mutant

_RULES = "unit/test_session_rules.py"
_IMPORT = "unit/test_session_import.py"
_DECLARED = "unit/test_session_declarations.py"
_QUEUES = "conformance/test_sessions.py::test_{}[sqlite]"
MUTANTS = (
    Mutant(
        "a wrong password in a browser is tried again for ever",
        "worker/task/login.py",
        "except (LoginFailed, StepFailed) as error:",
        "except LoginFailed as error:",
        "acceptance/test_sessions.py::test_a_wrong_password_in_a_browser_asks_for_a_person_too",
    ),
    Mutant(
        "a login that somebody else goes on with is finished all the same",
        "worker/sessions.py",
        "change(state) if state.login_token == login.token else None",
        "change(state)",
        _QUEUES.format("who_dies_at_a_login_blocks_it_for_its_term_and_comes_too_late"),
    ),
    Mutant(
        "a late answer ends whoever has logged in since",
        "worker/sessions.py",
        'if state.state != "in" or state.identity != identity:',
        'if state.state != "in":',
        _QUEUES.format("an_identity_is_ended_once_and_only_as_what_it_was"),
    ),
    Mutant(
        "workers with different keys take a session from each other",
        "core/session.py",
        "lost = (*(one for one in lost if one != state.key), state.key)[-MAX_LOST_KEYS:]",
        "lost = ()",
        _QUEUES.format("another_key_leads_to_one_new_login_and_not_to_a_quarrel"),
    ),
    Mutant(
        "a login goes on for ever without a word of whoever makes it",
        "core/session.py",
        "return self.login_until > now",
        "return self.login_until > 0",
        _QUEUES.format("who_dies_at_a_login_blocks_it_for_its_term_and_comes_too_late"),
    ),
    Mutant(
        "an end counts as a failed login although pages were right",
        "core/session.py",
        "failures = state.failures + (not state.is_confirmed)",
        "failures = state.failures + 1",
        _RULES,
    ),
    Mutant(
        "a login that could not be tried counts against the session",
        "core/session.py",
        "failures, pauses = state.failures + counts, state.pauses + 1",
        "failures, pauses = state.failures + 1, state.pauses + 1",
        _RULES,
    ),
    Mutant(
        "an identity leaves by another proxy when its own does not work",
        "fetch/exits/proxy_pool.py",
        "return first if first.cool_until <= now and first not in tried else None",
        "return first if first.cool_until <= now and first not in tried else self._choose_next(now, tried)",
        _RULES,
    ),
    Mutant(
        "a page of another host says that nobody is logged in",
        "worker/task/session_check.py",
        '    if not session.covers(response.url):\n        return ""\n',
        "",
        _RULES,
    ),
    Mutant(
        "headers of a session go to every host",
        "fetch/sessions/identity.py",
        "return self.options.headers + self.headers if self.options.covers(url) else ()",
        "return self.options.headers + self.headers",
        _IMPORT,
    ),
    Mutant(
        "a document of one session is taken for another's",
        "fetch/sessions/seal.py",
        'return b"shoal session\\0" + name.encode()',
        'return b"shoal session\\0"',
        _IMPORT,
    ),
    Mutant(
        "a message about a bad cookie holds its value",
        "fetch/sessions/exported.py",
        'raise UsageError(f"{where}: the name or the value has characters that no cookie has", hint=HINT)\n    if len(',
        'raise UsageError(f"{where}: {value} has characters that no cookie has", hint=HINT)\n    if len(',
        _IMPORT,
    ),
    Mutant(
        "a secret is declared for a host that it is not bound to",
        "config/sessions.py",
        "if uses_secret and not session.may_send_secret(session.login.url):",
        "if False:",
        _DECLARED,
    ),
    Mutant(
        "a step of a login shows what it fills in",
        "core/browser_step.py",
        "{'…' if self.only_at else self.text}",
        "{self.text}",
        _DECLARED,
    ),
)
