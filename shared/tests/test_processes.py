"""What becomes of workers that die, hang or are late: a fake worker plays each scenario in a real process."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_workers import ALL_PASSED, is_gone, outcomes, played, started
from fakes import TINY

from fluxbench.bench import processes
from fluxbench.records.schema import Status
from fluxbench.timing.telemetry import Reading, Sampler
from fluxbench.worker.request import Request


def test_workers_that_do_as_they_should_are_started_once_a_process(tmp_path: Path) -> None:
    assert outcomes(played(tmp_path, "")) == ALL_PASSED
    assert started(tmp_path) == 3


def test_a_crash_costs_one_status_and_a_fresh_process_goes_on_with_the_rest(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                print("RuntimeError: CUDA error: an illegal memory access was encountered")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGSEGV)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.CRASHED}
    reason = observed.failed["b", "tiny"][1]
    assert reason == (
        "the process ended with signal SIGSEGV: RuntimeError: CUDA error: an illegal memory access was encountered"
    )


def test_an_exit_in_the_second_process_costs_one_status(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, variant, workload) == (1, "c", "tinier"):
                sys.exit(7)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"c at tinier": Status.CRASHED}
    assert observed.failed["c", "tinier"][1] == "the process ended with exit code 7"


def test_two_crashes_in_one_process_cost_two_statuses(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, workload) == (2, "tiny") and variant in ("a", "c"):
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"a at tiny": Status.CRASHED, "c at tiny": Status.CRASHED}


def test_a_crash_while_a_variant_is_timed_costs_it_alone_and_says_how_it_ended(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, variant) == ("time", "b"):
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"b at {name}": Status.CRASHED for name in ("tiny", "tinier")}
    assert {reason for _, reason, _ in observed.failed.values()} == {
        "while it was timed, the process ended with signal SIGKILL"
    }
    assert started(tmp_path) == 4  # what failed once is not tried again


def test_a_crash_between_two_turns_costs_nothing(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, variant) == ("after", "b"):
                os.abort()
        """,
    )
    assert (outcomes(observed), observed.failed) == (ALL_PASSED, {})


def test_a_worker_that_always_dies_after_the_reference_is_given_up(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, step, variant) == (1, "after", "a"):
                os.abort()
        """,
    )
    assert started(tmp_path) == 4  # in the second process twice
    assert {pair: status for pair, status in outcomes(observed).items() if status != "3"} == {
        f"{variant} at {workload}": Status.CRASHED for variant in "bc" for workload in ("tiny", "tinier")
    }
    assert observed.failed["b", "tiny"][1] == "after a was timed, the process ended with signal SIGABRT"


def test_a_reference_that_crashes_in_a_later_turn_is_followed_by_the_rest(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, step) == (0, "again"):
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"a at {name}": Status.CRASHED for name in ("tiny", "tinier")}
    assert {turn.reference for turn in observed.of_process(1)} == {"b"}


def test_a_worker_that_never_begins_is_given_up_before_the_deadline(tmp_path: Path) -> None:
    observed = played(tmp_path, "sys.exit('ImportError: no module named torch')")
    assert set(outcomes(observed).values()) == {Status.CRASHED}
    assert len(observed.failed) == 6
    assert started(tmp_path) <= 2
    assert observed.failed["a", "tinier"][1] == "the process ended with exit code 1: ImportError: no module named torch"


def test_a_crash_while_inputs_are_made_costs_that_workload_alone(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, workload) == ("prepare", "tinier"):
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"{name} at tinier": Status.CRASHED for name in "abc"}
    assert observed.failed["a", "tinier"][1] == "while inputs were made, the process ended with signal SIGABRT"
    assert started(tmp_path) == 4  # whose inputs cannot be made is not asked for again


def test_a_failure_that_the_worker_survives_needs_no_fresh_process(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                return "fails"
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.INCORRECT}
    assert started(tmp_path) == 3


def test_a_crash_after_a_failure_that_was_said_keeps_what_was_said(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                emit("failed", variant="b", workload="tiny", status="ERROR", reason="what was said")
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.ERROR}
    assert observed.failed["b", "tiny"][1] == "what was said"


def test_a_hang_is_a_timeout_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (variant, workload) == ("b", "tiny"):
                time.sleep(600)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {"b at tiny": Status.TIMEOUT}


def test_a_hang_while_timing_is_a_timeout_of_the_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, variant) == ("time", "c"):
                time.sleep(600)
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"c at {name}": Status.TIMEOUT for name in ("tiny", "tinier")}
    assert observed.failed["c", "tiny"][1] == "while it was timed, no sign of life for 1 s; the process was ended"


def test_the_children_of_a_worker_that_hangs_are_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 1.0)
    played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            child = subprocess.Popen(["sleep", "600"])
            open("child.txt", "w").write(str(child.pid))
            time.sleep(600)
        """,
        names=("a",),
        shapes=(TINY,),
    )
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def test_a_child_that_a_finished_worker_left_behind_is_ended(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if step == "done":
                child = subprocess.Popen(["sleep", "600"])
                open("child.txt", "w").write(str(child.pid))
        """,
    )
    assert is_gone(int((tmp_path / "child.txt").read_text(encoding="utf-8")))


def test_at_the_deadline_what_is_left_times_out_and_what_is_measured_stays(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, step, variant) == (2, "time", "c"):
                time.sleep(600)
        """,
        deadline_s=2.0,
    )
    assert outcomes(observed) == ALL_PASSED | {f"c at {name}": Status.TIMEOUT for name in ("tiny", "tinier")}
    assert "time was up" in observed.failed["c", "tinier"][1]


def test_a_deadline_that_has_passed_leaves_no_pair_without_a_status(tmp_path: Path) -> None:
    observed = played(tmp_path, "time.sleep(600)", deadline_s=0.0)
    assert outcomes(observed) == dict.fromkeys(ALL_PASSED, Status.TIMEOUT)


def test_an_event_cut_in_half_is_not_taken_in(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (step, variant) == ("time", "b"):
                events.write('{"event": "timed", "variant": "b", "work')
                events.flush()
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED | {f"b at {name}": Status.CRASHED for name in ("tiny", "tinier")}


def test_an_event_that_arrives_in_two_parts_is_taken_in_whole(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def emit(event, **fields):
            line = json.dumps({"event": event, **fields}) + "\\n"
            events.write(line[:9])
            events.flush()
            time.sleep(0.01)
            events.write(line[9:])
            events.flush()
        """,
    )
    assert outcomes(observed) == ALL_PASSED


def test_each_process_is_told_which_one_it_is(tmp_path: Path) -> None:
    played(tmp_path, "")
    asked = [Request.from_json((tmp_path / f"request-{i}.json").read_text(encoding="utf-8")) for i in range(3)]
    assert [(each.process, each.sustained, each.variants) for each in asked] == [
        (process, True, ("a", "b", "c")) for process in range(3)
    ]


def test_a_process_that_goes_on_is_told_what_is_left_and_what_failed(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if (process, step, variant, workload) == (1, "check", "b", "tinier"):
                os.abort()
        """,
    )
    asked = Request.from_json((tmp_path / "request-2.json").read_text(encoding="utf-8"))
    assert (asked.process, asked.variants, asked.skip) == (1, ("b", "c"), (("b", "tinier"),))


def test_a_worker_that_dies_after_all_was_measured_costs_nothing(tmp_path: Path) -> None:
    observed = played(
        tmp_path,
        """
        def before(step, variant=None, workload=None):
            if step == "done":
                os.abort()
        """,
    )
    assert outcomes(observed) == ALL_PASSED


def test_the_last_process_probes_what_the_variants_are_capable_of(tmp_path: Path) -> None:
    observed = played(tmp_path, "")
    assert observed.probed == {name: {"causal": "yes"} for name in "abc"}
    asked = [Request.from_json(path.read_text()).probe for path in sorted(tmp_path.glob("request-*.json"))]
    assert asked == [False, False, True]


@pytest.mark.parametrize("how", ["os.abort()", "time.sleep(60)"])
def test_what_dies_or_hangs_while_it_is_probed_costs_no_time_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(processes, "SILENCE_LIMIT_S", 0.5)
    observed = played(
        tmp_path,
        f"""
        def before(step, variant=None, workload=None):
            if (step, variant) == ("probe", "b"):
                {how}
        """,
    )
    assert outcomes(observed) == ALL_PASSED
    assert set(observed.probed) == {"a"}
    assert started(tmp_path) == 3


def test_what_the_device_said_until_the_deadline_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneReading(Sampler):
        def __enter__(self) -> Sampler:
            self.readings.append(Reading(time_s=0.5, sm_clock_mhz=1755.0, power_w=640.0, temperature_c=61.0))
            return self

    monkeypatch.setattr(processes, "Sampler", OneReading)
    assert len(played(tmp_path, "time.sleep(600)", deadline_s=0.0).readings) == 1
