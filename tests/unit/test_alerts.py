"""Alert rules: each fires when it should and is silent when it should be, by Prometheus' own judgement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.prometheus import promtool

from shoal.cli.metrics import bundled_file

WORKER = 'instance="w:1", job="shoal"'
ROOM = 'instance="room:1", job="shoal"'
RUN = f'{ROOM}, run="r1", scraper="books"'
Series = dict[str, str]


def case(alert: str, at: str, series: Series, fires: bool, why: str) -> Any:
    return pytest.param(alert, at, series, fires, id=f"{alert}-{'fires' if fires else 'is silent'}-{why}")


def steady(**rates: str) -> Series:
    """Counters of a worker by name."""
    return {f"{name}{{{WORKER}}}": values for name, values in rates.items()}


def run_series(ready: str, done: str, paused: str = "0x60") -> Series:
    return {
        f'shoal_run_tasks{{{RUN}, state="ready"}}': ready,
        f'shoal_run_tasks{{{RUN}, state="delayed"}}': "9x60",
        f'shoal_run_tasks{{{RUN}, state="leased"}}': "0x60",
        f'shoal_run_tasks{{{RUN}, state="done"}}': done,
        f"shoal_run_paused{{{RUN}}}": paused,
    }


def attempts(failed: str, all: str, prefix: str = "shoal_", labels: str = WORKER) -> Series:
    return {
        f'{prefix}attempts_failed_total{{{labels}, class="http.5xx"}}': failed,
        f'{prefix}attempts_failed_total{{{labels}, class="dns"}}': "0x60",
        f"{prefix}attempt_seconds_count{{{labels}}}": all,
    }


STEP = f'shoal_worker_step_seconds{{{WORKER}, worker="a"}}'
LEASES = f'shoal_worker_leases{{{WORKER}, worker="a"}}'
DEATHS = f'shoal_worker_children_deaths_total{{{WORKER}, worker="a"}}'
REACHED = f'shoal_worker_queue_reachable{{{WORKER}, worker="a"}}'

CASES = [
    case("ShoalWorkerStuck", "3m", {STEP: "0 0 60 60 60"}, True, "code does not return"),
    case("ShoalWorkerStuck", "3m", {STEP: "0 0 3 0 3"}, False, "code that takes seconds"),
    case("ShoalWorkerStuck", "14m", {LEASES: "2x20"} | steady(shoal_attempt_seconds_count="5x20"), True, "held"),
    case("ShoalWorkerStuck", "14m", {LEASES: "2x20"} | steady(shoal_attempt_seconds_count="5+1x20"), False, "busy"),
    case("ShoalWorkerStuck", "14m", {LEASES: "0x20"} | steady(shoal_attempt_seconds_count="5x20"), False, "idle"),
    case("ShoalWorkerStuck", "5m", {LEASES: "2x20"} | steady(shoal_attempt_seconds_count="0x20"), False, "young"),
    case("ShoalRunStalled", "14m", run_series("5x60", "7x60"), True, "nothing ends"),
    case("ShoalRunStalled", "14m", run_series("5x60", "7+1x60"), False, "it goes on"),
    case("ShoalRunStalled", "14m", run_series("0x60", "7x60"), False, "all is delayed"),
    case("ShoalRunStalled", "14m", run_series("5x60", "7x60", "1x60"), False, "paused"),
    case("ShoalRunStalled", "5m", run_series("5x60", "7x60"), False, "it has just begun"),
    case("ShoalErrorBurst", "9m", attempts("0+20x60", "0+40x60"), True, "half fails"),
    case("ShoalErrorBurst", "9m", attempts("0+20x60", "0+40x60", "shoal_fleet_", ROOM), True, "seen by the room"),
    case("ShoalErrorBurst", "9m", attempts("0+4x60", "0+40x60"), False, "a tenth fails"),
    case("ShoalErrorBurst", "9m", attempts("0+1x60", "0+2x60"), False, "there is little to fail"),
    case("ShoalErrorBurst", "9m", attempts("0x60", "0x60"), False, "nothing happens"),
    case("ShoalDeadLettersGrowing", "9m", {f'shoal_dead_total{{{WORKER}, class="dns"}}': "0+5x60"}, True, "many"),
    case("ShoalDeadLettersGrowing", "9m", {f'shoal_fleet_dead_total{{{ROOM}, class="dns"}}': "0+5x60"}, True, "room"),
    case("ShoalDeadLettersGrowing", "9m", {f'shoal_dead_total{{{WORKER}, class="dns"}}': "4x60"}, False, "old ones"),
    case("ShoalHostParked", "12m", {f"shoal_hosts_parked{{{ROOM}}}": "2x60"}, True, "for long"),
    case("ShoalHostParked", "12m", {f"shoal_hosts_parked{{{ROOM}}}": "2 2 0x60"}, False, "for a moment"),
    case("ShoalQueueUnreachable", "3m", {REACHED: "1 0 0 0"}, True, "of a worker"),
    case("ShoalQueueUnreachable", "3m", {f"shoal_coordinator_queue_reachable{{{ROOM}}}": "1 0 0 0"}, True, "room"),
    case("ShoalQueueUnreachable", "3m", {REACHED: "1 0 1 1"}, False, "once"),
    case("ShoalWorkerGone", "4m", {f'shoal_workers{{{ROOM}, state="stale"}}': "0 1x60"}, True, "silent"),
    case("ShoalWorkerGone", "4m", {f"up{{{WORKER}}}": "1 0x60"}, True, "no answer"),
    case("ShoalWorkerGone", "4m", {'up{instance="x", job="other"}': "1 0x60"}, False, "somebody else"),
    case("ShoalWorkerGone", "4m", {f'shoal_workers{{{ROOM}, state="idle"}}': "1x60"}, False, "idle"),
    case("ShoalWorkersDying", "9m", {DEATHS: "0+1x60"}, True, "again and again"),
    case("ShoalWorkersDying", "9m", {DEATHS: "0 0 1x60"}, False, "once"),
    case(
        "ShoalNoWorkers",
        "7m",
        {f"shoal_claimable{{{ROOM}}}": "3x60", f'shoal_workers{{{ROOM}, state="idle"}}': "0x60"},
        True,
        "work waits",
    ),
    case(
        "ShoalNoWorkers",
        "7m",
        {f"shoal_claimable{{{ROOM}}}": "3x60", f'shoal_workers{{{ROOM}, state="working"}}': "1x60"},
        False,
        "one is there",
    ),
    case("ShoalScalerFailing", "7m", {f"shoal_scaler_failing{{{ROOM}}}": "1x60"}, True, "its driver"),
    case("ShoalScalerFailing", "19m", {f"shoal_scaler_silent_seconds{{{ROOM}}}": "0+60x60"}, True, "it is gone"),
    case("ShoalScalerFailing", "19m", {f"shoal_scaler_failing{{{ROOM}}}": "0 1 1 0x60"}, False, "for a moment"),
    case("ShoalScalerFailing", "19m", {f"shoal_scaler_silent_seconds{{{ROOM}}}": "30x60"}, False, "it looks"),
]


def test_all_alerts_are_tried_both_ways() -> None:
    named = {rule["alert"] for rule in yaml.safe_load(bundled_file("alerts"))["groups"][0]["rules"]}
    for fires in (True, False):
        assert {param.values[0] for param in CASES if param.values[3] is fires} == named


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "alerts.yml"
    file.write_text(bundled_file("alerts"))
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return file


@pytest.mark.parametrize(("alert", "at", "series", "fires"), CASES)
def test_alert(alert: str, at: str, series: Series, fires: bool, rules: Path, tmp_path: Path) -> None:
    # The number of firing alerts of one name, so that labels and words need not be repeated here.
    asked = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    expected = [{"labels": "{}", "value": 1}] if fires else []
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": asked, "eval_time": at, "exp_samples": expected}],
            }
        ],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps(document))
    judged = promtool("test", "rules", str(file))
    assert judged.returncode == 0, judged.stdout + judged.stderr
