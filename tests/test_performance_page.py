"""The page on performance says what the results say, where it says that it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from continual_crust.report.generated_tables import PLACE, filled
from performance_tables import PAGE, kernels, measured_tables, mnist, same_results, selection_tables, steps

RESULTS = Path(__file__).parent.parent / "results"


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def results(parts: dict[str, Any]) -> dict[str, Any]:
    return {"command": "this", "together": 5, "parts": parts}


def run(seed: int, digest: str) -> dict[str, Any]:
    return {"seed": seed, "accuracy": 0.8 + seed / 10, "purity": 0.9, "measured_sha256": digest}


def part(*runs: dict[str, Any], processes: bool = False) -> dict[str, Any]:
    times = {"whole_s": 9.0, "start_up_s": 1.5, "from_start_up_to_results_s": 7.04, "learning_s": 6.5}
    return {"processes": processes, **times, "selection_s": 2.25, "runs": list(runs)}


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(PLACE.findall(text)) == len(measured_tables())
    assert filled(text, measured_tables()) == text, "run: python benchmarks/performance_tables.py"


def test_steps_are_compared_with_as_many_plain_ones() -> None:
    measured = {"plain_ms": 2.0, "alone_ms": 0.5, "threads_ms": 1.0}
    network = "simple_cnn 28x28 float32"
    found = results({network: measured, "five processes": {network: {"processes_ms": 0.8}}})
    first, second = steps(found).splitlines()[2:4]
    assert first == "| SimpleCNN, 28x28 | 2.00 ms | 0.500 ms | 4.0 | 1.000 ms | 10.0 | 0.800 ms | 12.5 |"
    assert second == "| ResNet18, 32x32 | – | – | – | – | – | – | – |"
    older = results({network: {"plain_ms": 9.0}, "resnet18 32x32 float32": {"plain_ms": 3.0}})
    rows = steps(older, newer=found).splitlines()[2:4]
    assert rows == [first, "| ResNet18, 32x32 | 3.00 ms | – | – | – | – | – | – |"]


def test_whole_runs_have_a_row_each_and_what_failed_stays_empty() -> None:
    found = results(
        {
            "mnist, one seed": {"failed": "exit code 1", "last words": []},
            "mnist, five seeds, processes": part(run(0, "a"), run(1, "b")),
        }
    )
    rows = mnist(found).splitlines()[2:]
    assert rows[0] == "| one seed, on a fresh machine | 12 s | – | – | – | – | – |"
    assert rows[2].startswith("| five seeds, processes, not as meant | 20 s | 7.0 s | 6.5 s | 2.2 s | 1.5 s |")


def test_kernels_of_several_runs_are_also_told_for_each() -> None:
    found = {"together": 5, "kernels": {"a kernel": {"alone_us": 4.04, "together_us": 12.5}}}
    assert kernels(found).splitlines()[2] == "| a kernel | 4.0 µs | 12.5 µs | 2.5 µs |"


@pytest.mark.parametrize(
    ("digests", "told"),
    [("aa", "more than once: 1; all"), ("ab", "0 came to different ends"), ("a", "No seed has been run twice")],
)
def test_different_ends_are_told(digests: str, told: str) -> None:
    names = ("mnist, one seed", "mnist, five seeds, processes")
    parts = {name: part(run(0, digest)) for name, digest in zip(names, digests, strict=False)}
    assert told in same_results(results(parts))


def test_selection_is_compared_with_the_faster_peer() -> None:
    for row in measured("selection_cpu")["facility_location"]:
        assert row["ratio_s"] == pytest.approx(min(row["apricot_s"], row["submodlib_s"]) / row["ours_s"])


def test_selection_measured_anew_changes_its_tables() -> None:
    names = ("selection_cpu", "selection_cpu_intel", "selection_million")
    selection, intel, million = map(measured, names)
    before = {name: make() for name, make in selection_tables(selection, intel, million).items()}
    intel["facility_location"][0]["ours_s"] *= 3
    for row in (*selection["facility_location"], *selection["spectral"], *selection["growth"]["spectral_n"]):
        row["ours_s"] *= 3
    for row in selection["partition"]:
        row["objective_ratio"] -= 0.1
    million["million"]["facility_location"]["ours_s"] *= 3
    after = {name: make() for name, make in selection_tables(selection, intel, million).items()}
    assert all(after[name] != before[name] for name in before)


def test_training_beside_avalanche_is_as_it_was_measured() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for row in measured("training_cpu")["rows"]:
        digits = 0 if row["ours_steps_per_s"] > 200 else 1
        ours, stock, tuned, lower = (
            f"{row[f'{name}_steps_per_s']:.{digits}f}"
            for name in ("ours", "avalanche", "avalanche_tuned", "ours_bfloat16")
        )
        alone, plain = (f"{1 / row[f'network_alone_{name}_s']:.{digits}f}" for name in ("step", "step_of_pytorch"))
        told = (
            f"| {row['case']} | {ours} | {stock} | **{row['times_avalanche_s']:.2f}** | {tuned} "
            f"| {row['times_avalanche_tuned_s']:.2f} | {lower} | {alone} | {plain} "
            f"| {1 / row['network_alone_step_products_s']:.0f} |"
        )
        assert told in text
