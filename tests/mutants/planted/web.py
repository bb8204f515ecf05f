"""Planted changes of the server."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "the head of a response goes alone, and a server killed then is noticed through a proxy",
        "web/http/connection_transport.py",
        "        if self._unsent_bytes > WRITE_AT_ONCE:",
        "        if self._unsent_bytes:",
        "unit/test_connection_transport.py",
    ),
    Mutant(
        "what was written before a connection is closed is lost",
        "web/http/connection_transport.py",
        "    def close(self) -> None:\n        self._flush()\n",
        "    def close(self) -> None:\n",
        "unit/test_connection_transport.py",
    ),
    Mutant(
        "a list of slow URLs keeps everybody waiting",
        "web/submit/turns.py",
        "await asyncio.sleep(0)",
        "pass",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "a worker says how much the server keeps of its cache",
        "web/api/queue.py",
        "cache_size=context.settings.cache_size",
        "cache_size=2**62",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "the key of a cache entry has no bound",
        "queue/cache_limits.py",
        "0 < len(entry.key) <= MAX_KEY",
        "0 < len(entry.key)",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "a schedule of the API forgets its retention of dead letters",
        "web/submit/schedule_requests.py",
        "        dead_retention=plan.dead_retention,\n",
        "",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "sessions never end",
        "web/auth/session.py",
        "return found if found.until > time.time() else None",
        "return found",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "cookies need no signature",
        "web/auth/session.py",
        '        if not hmac.compare_digest(self._sign("session", body), signature):\n            return None\n',
        "",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "a session outlives its token",
        "web/auth/session.py",
        " and hmac.compare_digest(self.digest_prefix, token.digest[:16])",
        "",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "the word of one session is that of all",
        "web/auth/session.py",
        'return self._sign("csrf", caller.session or caller.via)',
        'return self._sign("csrf", caller.via)',
        "unit/test_web_parts.py",
    ),
    Mutant(
        "a session's signature is a form's word",
        "web/auth/session.py",
        'f"{what}:{text}".encode()',
        "text.encode()",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "a token of the settings may be short",
        "web/auth/tokens.py",
        "if len(text) < MIN_LENGTH:",
        "if not text:",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "a line as long as you like",
        "web/http/slots.py",
        "        if len(self._waiters) >= self._max_waiting:\n            return False\n",
        "",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "a slot is lost with one who gave up at the moment of his turn",
        "web/http/slots.py",
        "                self.release(caller)  # it was our turn at the very moment\n",
        "                pass\n",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "one caller may fill a pool",
        "web/http/slots.py",
        " or self._held[caller] >= self._per_caller",
        "",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "streams and batches share a pool",
        "web/http/limits.py",
        "BATCH: CallerSlots(*BATCHES)",
        "BATCH: self._stream_slots",
        "unit/test_web_limits.py",
    ),
    Mutant(
        "a slot goes to one who gave up",
        "web/http/slots.py",
        "            if not waiter.done():\n                waiter.set_result(None)\n                return",
        "            if not waiter.done():\n                waiter.set_result(None)\n            return",
        "unit/test_web_parts.py",
    ),
    Mutant(
        "programs of other users need no token",
        "web/auth/authenticate.py",
        "return None if uid is None else uid == os.geteuid()",
        "return True",
        "acceptance/test_server_access.py::test_programs_of_other_users_do",
    ),
)
