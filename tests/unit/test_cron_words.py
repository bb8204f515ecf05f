"""Cron expressions in words, as people say them."""

from __future__ import annotations

import pytest

from shoal.core.cron_words import describe_cron
from shoal.errors import UsageError


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 * * *", "every day at 03:00 Europe/Berlin"),
        ("@daily", "every day at 00:00 Europe/Berlin"),
        ("30 3,15 * * *", "every day at 03:30 and 15:30 Europe/Berlin"),
        ("0 9 * * mon-fri", "Monday to Friday at 09:00 Europe/Berlin"),
        ("0 9 * * 1", "every Monday at 09:00 Europe/Berlin"),
        ("0 9 * * sun,tue", "every Tuesday and Sunday at 09:00 Europe/Berlin"),
        ("0 0 1 * *", "on the 1st of every month at 00:00 Europe/Berlin"),
        ("0 0 1,15,22 * *", "on the 1st, 15th and 22nd of every month at 00:00 Europe/Berlin"),
        ("0 0 11 1 *", "on the 11th of January at 00:00 Europe/Berlin"),
        ("0 6 * 6-8 *", "every day in June, July and August at 06:00 Europe/Berlin"),
        ("0 0 13 * fri", "on the 13th of every month and every Friday at 00:00 Europe/Berlin"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("@hourly", "every hour"),
        ("5,35 * * * *", "every hour at 5 and 35 past"),
        ("0 8-18 * * 1-5", "every hour from 08:00 to 18:00, Monday to Friday, Europe/Berlin"),
        ("*/10 8-18 * * *", "every 10 minutes from 08:00 to 18:50 Europe/Berlin"),
        ("0 */2 * * *", "every 2 hours Europe/Berlin"),
        ("every 15m", "every 15 minutes"),
        ("every 2h", "every 2 hours"),
    ],
)
def test_a_time_is_said_as_people_say_it(cron: str, words: str) -> None:
    assert describe_cron(cron, "Europe/Berlin") == words


def test_what_is_no_time_is_an_error() -> None:
    with pytest.raises(UsageError, match="is not a time"):
        describe_cron("now and then", "UTC")
