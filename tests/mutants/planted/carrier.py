"""Planted mistakes of what RabbitMQ carries."""

from __future__ import annotations

from mutants.mutant import Mutant

_DELIVERIES = "acceptance/test_rabbitmq_deliveries.py"
_CLIENT = "acceptance/test_amqp_client.py"
_DUTIES = "acceptance/test_relay_duties.py"
_LIMITS = "acceptance/test_relay_limits.py"
_PERMISSIONS = "acceptance/test_rabbitmq_permissions.py"

MUTANTS = (
    Mutant(
        "the relay's cache is as large as a stranger says",
        "control/queue_verbs.py",
        "        args[1] = min(args[1], cache_size)",
        "        pass",
        _LIMITS,
    ),
    Mutant(
        "the relay answers into any queue",
        "control/carrier/answers.py",
        "properties.reply_to.startswith(REPLY_PREFIX) and",
        "properties.reply_to and",
        _LIMITS,
    ),
    Mutant(
        "a dead worker may have had any number of tasks",
        "queue/request_cost.py",
        "        if isinstance(value, dict) and sum(",
        "        if False and sum(",
        _LIMITS,
    ),
    Mutant(
        "a message that makes no sense stays with the relay",
        "control/carrier/answers.py",
        "    except NotAmqp:\n        return Properties()",
        "    except NotAmqp:\n        raise",
        _LIMITS,
    ),
    Mutant(
        "a relay whose queue was deleted does not notice",
        "control/carrier/answers.py",
        "on_cancel=lambda: end(gone)",
        "on_cancel=None",
        _LIMITS,
    ),
    Mutant(
        "an answer is sent as one message, however large",
        "queue/broker/parts.py",
        '        yield f"{number}/{count}", body',
        '        yield f"{number}/{count + 1}", body',
        _LIMITS,
    ),
    Mutant(
        "parts of requests that never end fill the relay's memory",
        "control/carrier/uploads.py",
        "            is_bounded = self._size <= MAX_TOTAL and len",
        "            is_bounded = len",
        _LIMITS,
    ),
    Mutant(
        "people who look wait for a relay as long as workers do",
        "queue/rabbitmq/__init__.py",
        "HURRY_BUDGET if self._hurry else HELLO_BUDGET",
        "HELLO_BUDGET",
        f"{_DELIVERIES}::test_people_who_look_are_told_at_once_that_no_relay_runs",
    ),
    Mutant(
        "a push of another process is forgotten where something was delivered",
        "queue/rabbitmq/__init__.py",
        "not request_id or is_made_here(request_id)",
        "True",
        f"{_DELIVERIES}::test_a_push_of_another_process_is_repeated_also_where_something_else_was_delivered",
    ),
    Mutant(
        "what waits at a worker is taken for missing",
        "control/carrier/audit.py",
        "self._holdings.delivered(now)",
        "self._holdings.held(now)",
        f"{_DELIVERIES}::test_what_waits_at_a_worker_that_is_slow_is_not_taken_for_missing",
    ),
    Mutant(
        "a task that is done at most once is begun again after its worker died",
        "queue/rabbitmq/deliveries.py",
        "if auto and message.redelivered:",
        "if False:",
        f"{_DELIVERIES}::test_auto_tasks_that_a_dead_worker_may_have_begun_are_letters_and_nobody_begins_them",
    ),
    Mutant(
        "reports of workers fill the relay's memory",
        "control/carrier/holdings.py",
        "len(self._workers) > MAX_WORKERS or self._count > MAX_HELD:",
        "len(self._workers) > MAX_WORKERS:",
        _LIMITS,
    ),
    Mutant(
        "a message longer than announced is taken",
        "amqp/channel.py",
        "        if self._received > size:",
        "        if False:",
        _CLIENT,
    ),
    Mutant(
        "messages go out while the broker blocks",
        "amqp/connection.py",
        "        if (self._paused or self.blocked) and self.is_open:",
        "        if self._paused and self.is_open:",
        f"{_CLIENT}::test_publishers_wait_while_the_broker_blocks_and_go_on_after_it",
    ),
    Mutant(
        "what was delivered before is begun unasked",
        "queue/rabbitmq/deliveries.py",
        "        elif message.redelivered or AGAIN in message.header:",
        "        elif AGAIN in message.header:",
        f"{_DELIVERIES}::test_a_task_that_another_worker_holds_is_not_begun_again",
    ),
    Mutant(
        "a worker without rights in the broker waits for ever",
        "queue/rabbitmq/deliveries.py",
        "            if is_refusal(error):  # and would hear the same",
        "            if False:",
        f"{_PERMISSIONS}::test_a_worker_that_may_not_consume_is_told_so_and_what_to_type",
    ),
    Mutant(
        "a dead worker's task is charged to nobody",
        "control/carrier/leases.py",
        "    verdicts = await ledger.settle(outcomes) if outcomes else []",
        "    outcomes, verdicts = [], []",
        f"{_DELIVERIES}::test_whoever_kills_its_workers_is_a_dead_letter_and_the_others_are_not_charged",
    ),
    Mutant(
        "what the broker lost stays leased",
        "control/carrier/audit.py",
        "        lost = [view for key, view in missing.items() if key in self._missing]",
        "        lost = []",
        f"{_DELIVERIES}::test_what_a_relay_leased_before_it_died_is_published_by_the_next",
    ),
    Mutant(
        "heartbeats do not reach leases of the relays",
        "control/carrier/leases.py",
        "    if not own.lost:",
        "    if True:",
        f"{_DELIVERIES}::test_leases_of_workers_go_on_by_their_heartbeats_and_end_with_their_run",
    ),
    Mutant(
        "work with a pace is published all the same",
        "control/carrier/ahead.py",
        "is_paced = task.spacing or task.start_in > 0 or task.probe",
        "is_paced = False",
        f"{_DELIVERIES}::test_work_with_a_pace_or_needs_is_claimed_and_never_published",
    ),
    Mutant(
        "the answer to a cancelled caller is the next one's",
        "amqp/channel.py",
        "                    self._unheard.append(answer)",
        "                    pass",
        f"{_CLIENT}::test_the_answer_to_a_caller_that_was_cancelled_is_not_taken_for_the_next_ones",
    ),
    Mutant(
        "a connection stays open if its closing is cancelled",
        "amqp/connection.py",
        "            finally:  # also if whoever closes it is cancelled: nobody else would",
        "            except AmqpError:",
        f"{_CLIENT}::test_a_connection_is_closed_also_if_whoever_closes_it_is_cancelled",
    ),
    Mutant(
        "whoever closes still seems to hold its tasks",
        "queue/rabbitmq/deliveries.py",
        "            self._held.clear()\n            self._take_back()\n",
        "            self._take_back()\n",
        f"{_DELIVERIES}::test_what_a_worker_held_when_it_was_closed_is_anothers_at_once",
    ),
    Mutant(
        "a repeated request is given what was delivered meanwhile",
        "queue/rabbitmq/__init__.py",
        "        if was_delivered is None:",
        "        if True:",
        f"{_DELIVERIES}::test_a_repeated_request_returns_its_own_batch_whatever_else_was_delivered",
    ),
    Mutant(
        "a repeated request of what was delivered is a new one",
        "queue/rabbitmq/__init__.py",
        "        if was_delivered:",
        "        if False:",
        f"{_DELIVERIES}::test_a_repeated_request_returns_its_own_batch_whatever_else_was_delivered",
    ),
    Mutant(
        "a duty that fails ends the relay",
        "control/carrier/duty.py",
        "            failures.note(name, error)",
        "            raise",
        f"{_DUTIES}::test_a_duty_that_fails_is_logged_shown_and_begun_again_while_the_relay_answers",
    ),
    Mutant(
        "nobody hears of a duty of the broker that fails",
        "control/broker_duties.py",
        "                    self._failures.note(name, ended)",
        "                    raise ended",
        f"{_DUTIES}::test_what_others_publish_is_taken_while_copying_letters_fails",
    ),
    Mutant(
        "runs with a pace by a rule are published ahead",
        "control/carrier/free_runs.py",
        "route.session or route.spacing or route.in_flight",
        "route.session",
        "acceptance/test_rabbit_queues.py::test_only_runs_whose_rules_ask_for_no_pace_needs_or_session_are_messages",
    ),
    Mutant(
        "a plus in the ledger's URL is a space",
        "queue/broker/broker_url.py",
        "{name: unquote(value)",
        '{name: unquote(value.replace("+", " "))',
        "unit/test_broker_url.py",
    ),
)
