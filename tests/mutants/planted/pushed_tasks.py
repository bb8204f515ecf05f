"""Planted changes of the ports of workers, the load balancer and the doctor's look at the work."""

from __future__ import annotations

from mutants.mutant import Mutant

_PUSH = "acceptance/test_push.py"
_SYMPTOMS = "acceptance/test_troubleshooting.py"

MUTANTS = (
    Mutant(
        "the port of a worker takes tasks from anybody",
        "web/push/port.py",
        "if not self._may(",
        "if False and not self._may(",
        f"{_PUSH}::test_port_refuses_strangers_and_what_is_too_much",
    ),
    Mutant(
        "a body may be as long as somebody likes",
        "view/small_server.py",
        "if len(length) > 12 or int(length) > limit:",
        "if len(length) > 12:",
        f"{_PUSH}::test_port_refuses_strangers_and_what_is_too_much",
    ),
    Mutant(
        "an announcement counts whoever signed it",
        "control/worker_ports.py",
        "if hmac.compare_digest(",
        "if True or hmac.compare_digest(",
        f"{_PUSH}::test_workers_are_found_in_the_queue_unless_somebody_else_announced_them",
    ),
    Mutant(
        "a full worker takes more",
        "core/balancing.py",
        "return self.in_flight < self.places",
        "return self.places > 0",
        f"{_PUSH}::test_full_worker_is_passed_over_and_what_nobody_takes_waits_in_the_queue",
    ),
    Mutant(
        "a worker without the code takes a task",
        "web/push/pusher.py",
        "elif not has_code:",
        "elif False:",
        f"{_PUSH}::test_worker_without_the_code_or_the_capability_is_passed_over",
    ),
    Mutant(
        "a lost answer makes a second task",
        "web/push/pusher.py",
        "task.to_queue_task(request.id)",
        "task.to_queue_task()",
        f"{_PUSH}::test_answer_that_was_lost_makes_no_second_task",
    ),
    Mutant(
        "a process that stands still gets tasks",
        "worker/pool/push_targets.py",
        "places=note.places if is_fresh else 0",
        "places=note.places",
        f"{_PUSH}::test_child_that_stands_still_gets_nothing_and_what_a_killed_one_had_is_done_once",
    ),
    Mutant(
        "the pace of workers is not looked at",
        "core/balancing.py",
        "return (load.in_flight + 1) * seconds / max(load.places, 1)",
        "return (load.in_flight + 1) / max(load.places, 1)",
        "unit/test_balancing.py",
    ),
    Mutant(
        "the pace of a worker never changes",
        "core/balancing.py",
        "kept = max(0.0, 1.0 - new / PACE_WINDOW)",
        "kept = 1.0",
        "unit/test_balancing.py",
    ),
    Mutant(
        "nobody is told that workers are paused",
        "view/work_checks.py",
        'status.command == "pause" or status.state == "paused"',
        "False",
        f"{_SYMPTOMS}::test_workers_not_picking_up_tasks",
    ),
    Mutant(
        "messages that are in progress for long are no news",
        "view/celery_checks.py",
        "if age > LONG_SHARE * limit:",
        "if False:",
        f"{_SYMPTOMS}::test_visibility_timeout",
    ),
    Mutant(
        "kombu takes any client",
        "view/celery_checks.py",
        "elif not wanted.specifier.contains(installed, prereleases=True):",
        "elif False:",
        f"{_SYMPTOMS}::test_kombu_and_its_client_do_not_fit",
    ),
)
