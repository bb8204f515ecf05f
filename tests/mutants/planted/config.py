"""Planted changes of settings and what travels with a run."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a rate may be as low as one request in an age",
        "core/units.py",
        "if found < 1.0 / MAX_SECONDS:",
        "if found <= 0:",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "a number may be larger than a queue can hold",
        "core/units.py",
        "if not least <= found <= MAX_INTEGER",
        "if not least <= found",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "a size may be infinite",
        "core/units.py",
        "return number(float(match[1]) * units[match[2].lower()])",
        "return float(match[1]) * units[match[2].lower()]",
        "unit/test_hostile_submissions.py",
    ),
    Mutant(
        "a run may set what is the machine's",
        "config/run_settings.py",
        "spec = {name: value for name, value in given.items() if name in RUN_SETTINGS}",
        "spec = dict(given)",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "secrets are stored in the queue",
        "config/run_settings.py",
        "        if _is_secret(name, value):",
        "        if False:",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a login with its password is no secret",
        "config/run_settings.py",
        '(":" in value or " " in value)',
        "False",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a run may name any proxy",
        "config/run_settings.py",
        "if proxy and str(proxy).lower() not in settings.secrets:",
        "if False:",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a run may ask for bodies of any size",
        "config/run_settings.py",
        "return replace(asked, **above) if above else asked",
        "return asked",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a rate of a run is overruled by its derived delay",
        "config/run_settings.py",
        'if name != "delay"} if "rate" in spec else spec',
        'if name != "rate"} if "rate" in spec else spec',
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a worker's delay stands beside the rate of a run",
        "config/run_settings.py",
        '        kept.pop("delay", None)\n',
        "",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a header that is a secret travels",
        "config/run_settings.py",
        "return any(_is_secret_header(line) for line in value)",
        "return False",
        "unit/test_run_settings.py",
    ),
    Mutant(
        "a run of somebody else lifts the limits of a page",
        "config/run_settings.py",
        "        if wanted > most:",
        "        if False:",
        "unit/test_run_settings.py",
    ),
)
