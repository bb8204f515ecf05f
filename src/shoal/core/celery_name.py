"""The names of Celery tasks, as far as anything of ours may send them."""

from __future__ import annotations

import re

is_task_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}").fullmatch
is_task_pattern = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_.:*-]{0,199}").fullmatch
