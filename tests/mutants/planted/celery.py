"""Planted changes of what shoal does inside Celery."""

from __future__ import annotations

from mutants.mutant import Mutant

ACCEPTANCE = "acceptance/test_celery.py::"
MUTANTS = (
    Mutant(
        "two messages for one URL are taken for one page",
        "integrations/celery/page_runs.py",
        'digest=digest(f"celery {message} {made.digest.hex()}")',
        "digest=made.digest",
        ACCEPTANCE + "test_a_message_that_is_delivered_twice_is_fetched_and_recorded_once",
    ),
    Mutant(
        "a pickle is read where its app accepts it",
        "integrations/celery/json_only.py",
        "if message.content_type != JSON:",
        "if False:",
        ACCEPTANCE + "test_pickled_messages_are_refused_before_they_are_read",
    ),
    Mutant(
        "a retry keeps its process waiting",
        "integrations/celery/page_runs.py",
        "            await self._raise_if_delayed(number)\n",
        "",
        ACCEPTANCE + "test_a_page_that_is_retried_gives_its_process_back_meanwhile",
    ),
    Mutant(
        "any task of an app can be sent by whoever writes to the queue",
        "control/celery/follow_ups.py",
        "            self._warn(task.name)\n            return False\n",
        "            self._warn(task.name)\n",
        "unit/test_celery_rules.py",
    ),
    Mutant(
        "each process of a worker has a rate of its own",
        "worker/start_rate.py",
        "os.pwrite(self._file, _next_at.pack(change(self._read(), self._clock())), 0)",
        "self._own = change(getattr(self, '_own', 0.0), self._clock())",
        "unit/test_celery_rules.py",
    ),
    Mutant(
        "a message whose worker died is never sent again",
        "control/celery/work_messages.py",
        "if _ticket(document).until < now and",
        "if document is None and",
        "unit/test_celery_rules.py",
    ),
    Mutant(
        "whoever sends a task waits for the result backend",
        "control/celery/broker.py",
        "ignore_result=True,",
        "ignore_result=False,",
        ACCEPTANCE + "test_what_is_sent_does_not_wait_for_results_or_for_a_broker_that_is_away",
    ),
    Mutant(
        "a result backend that Celery does not know is found by the first message",
        "control/celery/broker.py",
        "    _check_backend(options.results_url)\n",
        "",
        "unit/test_celery_rules.py",
    ),
    Mutant(
        "the same page sends its task under another id each time",
        "core/celery_task.py",
        "uuid.uuid5(_NAMESPACE,",
        "uuid.uuid5(uuid.uuid4(),",
        "unit/test_celery_rules.py",
    ),
)
