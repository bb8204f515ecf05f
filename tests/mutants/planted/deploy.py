"""Planted mistakes of the files for deployment, and of what servers do for the proxy in front of them."""

from __future__ import annotations

from mutants.mutant import Mutant

_SERVER = "../../deploy/nginx/shoal/server.conf"
_NGINX = "acceptance/test_nginx.py"
_KUBERNETES = "acceptance/test_kubernetes.py"
_TWO = "acceptance/test_two_servers.py"

MUTANTS = (
    Mutant(
        "nginx believes what a client says of itself",
        _SERVER,
        "proxy_set_header X-Forwarded-For $remote_addr;",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        f"{_NGINX}::test_whom_a_request_is_from_is_said_by_nginx_alone",
    ),
    Mutant(
        "nginx repeats what must not be repeated",
        _SERVER,
        "proxy_next_upstream error timeout;",
        "proxy_next_upstream error timeout non_idempotent;",
        f"{_NGINX}::test_only_what_may_be_repeated_is_sent_to_the_other_server",
    ),
    Mutant(
        "nginx takes a server for dead whose queue is away",
        _SERVER,
        "proxy_next_upstream error timeout;",
        "proxy_next_upstream error timeout http_503;",
        f"{_NGINX}::test_a_queue_that_is_away_is_said_by_the_servers_and_makes_none_of_them_dead",
    ),
    Mutant(
        "a repeated request does not wait for the first",
        "web/http/idempotency.py",
        "        if not fingerprint:",
        "        if True:",
        f"{_TWO}::test_a_request_whose_server_died_is_waited_for_and_done_by_the_other",
    ),
    Mutant(
        "a server that starts refuses what it could answer in a moment",
        "web/http/startup_gate.py",
        "                await asyncio.wait_for(self._opened.wait(), OPENING)",
        "                pass",
        "unit/test_startup_gate.py",
    ),
    Mutant(
        "a pod is killed while it drains",
        "../../deploy/kubernetes/base/worker.yaml",
        "terminationGracePeriodSeconds: 45",
        "terminationGracePeriodSeconds: 30",
        f"{_KUBERNETES}::test_a_pod_has_time_to_drain",
    ),
    Mutant(
        "the scaler may scale whatever it likes",
        "../../deploy/kubernetes/overlays/shoal/access.yaml",
        "    verbs: [list, patch]",
        "    verbs: [list, patch, delete]",
        f"{_KUBERNETES}::test_the_role_allows_what_the_driver_asks_for_and_nothing_else",
    ),
    Mutant(
        "the watchdog of whoever started us is fed",
        "launch/service_manager.py",
        "        return 0.0  # it was meant for the process that started us",
        "        pass",
        "acceptance/test_systemd.py::test_a_watchdog_that_is_meant_for_another_process_is_not_fed",
    ),
)
