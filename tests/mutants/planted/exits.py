"""Planted changes of the exits that requests leave by."""

from __future__ import annotations

from mutants.mutant import Mutant

_UNIT = "unit/test_exit_set.py"
MUTANTS = (
    Mutant(
        "exits that only rules name are looked for when a page is blocked",
        "launch/request_options.py",
        "exit_of_rule(settings.on_block), *by_rule):",
        "*by_rule[:0]):",
        "unit/test_exit_set.py",
    ),
    Mutant(
        "a worker is told to say that it has an exit which it has not",
        "runs/missing_capabilities.py",
        "name.startswith((EXIT_PREFIX, SESSION_PREFIX))",
        "name.startswith(SESSION_PREFIX)",
        "unit/test_needs.py",
    ),
    Mutant(
        "a byte order mark is part of the first proxy",
        "config/exits.py",
        'raw.decode("utf-8-sig", "replace")',
        'raw.decode("utf-8", "replace")',
        "unit/test_exit_set.py",
    ),
    Mutant(
        "a proxy that cools down is used",
        "fetch/exits/proxy_pool.py",
        "        for _ in self.proxies:\n            proxy = self.proxies[self._next % len(self.proxies)]\n"
        "            self._next += 1\n            if proxy.cool_until <= now and",
        "        for _ in self.proxies:\n            proxy = self.proxies[self._next % len(self.proxies)]\n"
        "            self._next += 1\n            if",
        _UNIT,
    ),
    Mutant(
        "one site that is down speaks against the proxy",
        "fetch/exits/proxy_pool.py",
        "return self.in_a_row + several",
        "return self.failures",
        _UNIT,
    ),
    Mutant(
        "a task is given to workers without its exit",
        "core/routes.py",
        "needs = capability_names({*needs, exit_capability(exit)})",
        "needs = capability_names(needs)",
        _UNIT,
    ),
    Mutant(
        "an answer of 407 to CONNECT is the site's",
        "fetch/curl_errors.py",
        "return 400 <= connect_status < 500",
        "return 500 <= connect_status",
        _UNIT,
    ),
)
