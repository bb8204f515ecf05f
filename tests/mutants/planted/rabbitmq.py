"""Planted changes of what a relay does in RabbitMQ for other programs."""

from __future__ import annotations

from mutants.mutant import Mutant

INTAKE = "acceptance/test_rabbit_intake.py"
LETTERS = "acceptance/test_rabbit_letters.py"

MUTANTS = (
    Mutant(
        "what has been copied already is copied again after a crash",
        "control/letter_copies.py",
        "        self._is_in_doubt = bool(self._position.to)",
        "        self._is_in_doubt = False",
        f"{LETTERS}::test_every_death_is_copied_once_however_often_whoever_copies_is_interrupted",
    ),
    Mutant(
        "a copy whose id the killed broker did not keep is there twice",
        "control/letter_copies.py",
        "            copied = await self._find(channel, self._queues.dead, names - noted)",
        "            copied = set()",
        LETTERS,
    ),
    Mutant(
        "a queue of ids that the broker cannot read stops the copying of letters",
        "control/letter_copies.py",
        "            self._unreadable += error.code == INTERNAL_ERROR",
        "            self._unreadable += 0",
        LETTERS,
    ),
    Mutant(
        "ids are written to a queue that the broker cannot read",
        "control/letter_copies.py",
        "        if not self._unreadable:\n",
        "        if True:\n",
        LETTERS,
    ),
    Mutant(
        "a person is told to delete messages that are nowhere else",
        "control/broker_queues.py",
        "self.intake, QUORUM | routed, only_copies=False)",
        "self.intake, QUORUM | routed)",
        "acceptance/test_rabbitmq_deliveries.py::test_nobody_is_told_to_delete_messages_that_are_nowhere_else",
    ),
    Mutant(
        "a published task waits longer than its TTL",
        "control/carrier/ahead.py",
        "expiration=left)",
        "expiration=None)",
        f"{LETTERS}::test_a_task_that_expires_in_the_broker_is_expired_in_the_ledger_and_a_letter",
    ),
    Mutant(
        "a letter of an earlier death revives a task that has died again",
        "control/intake.py",
        "        if letter.died_at and letter.died_at != dead[0].finished_at:",
        "        if False:",
        f"{INTAKE}::test_a_letter_that_is_published_is_revived_and_only_for_the_death_that_it_tells_of",
    ),
    Mutant(
        "messages with one id and another text are one task",
        "control/intake.py",
        'f"message {hashlib.sha256(message.body).hexdigest()[:32]} {given}"[:500]',
        'f"message {given}"[:500]',
        f"{INTAKE}::test_urls_and_typed_tasks_of_another_program_become_tasks_once",
    ),
    Mutant(
        "unknown fields of a message are ignored",
        "control/intake_message.py",
        "class UrlMessage(TaskLine, frozen=True, forbid_unknown_fields=True, kw_only=True):",
        "class UrlMessage(TaskLine, frozen=True, forbid_unknown_fields=False, kw_only=True):",
        f"{INTAKE}::test_malformed_messages_are_rejected_with_the_reason_and_the_others_taken",
    ),
    Mutant(
        "the queue's login goes to any host of a management API",
        "control/rabbitmq_management.py",
        "    if not user and login[0] and parts.hostname == broker:",
        "    if not user and login[0]:",
        "acceptance/test_rabbit_status.py::test_the_login_of_the_queue_goes_to_its_own_broker_only",
    ),
    Mutant(
        "a settings file does not go before the variables of servers",
        "config/load.py",
        "(_from_variables(env), _from_file(path), _from_env(env), _from_flags(flags))",
        "(_from_file(path), _from_variables(env), _from_env(env), _from_flags(flags))",
        "unit/test_server_variables.py",
    ),
)
