"""SIGKILL at any moment of `learn`, `study run` and `run`: what is there loads, and the end is the same to the bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from kill_test import LearnScene, RunScene, Scene, StudyScene, Tally, calls_of, in_child, one_round


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    # Forked processes inherit no threads, and would wait for them.
    torch.set_num_threads(1)
    return LearnScene(tmp_path_factory.mktemp("scene"), images=20)


def test_random_kills(scene: Scene) -> None:
    random_numbers = random.Random(1)
    moments = calls_of(scene)
    assert moments > 20  # seven checkpoints and a generation
    tally = Tally()
    for _ in range(3):
        one_round(scene, random_numbers, moments, tally)
    assert tally.struck
    assert (tally.unloadable, tally.different_ends, tally.left_behind) == (0, 0, 0)


def test_a_kill_in_the_last_moment_keeps_what_was_learned(scene: Scene) -> None:
    """Between the new generation's appearance and the end, repeating finds nothing to do."""
    moments = calls_of(scene)
    state = scene.fresh("last")
    assert in_child(lambda: scene.work(state), durable_call=moments - 1)
    assert scene.content(state) == scene.after
    scene.work(state)
    assert scene.content(state) == scene.after


@pytest.mark.parametrize("saved", [2, 5, 6])
def test_training_goes_on_where_it_stood(saved: int, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt must not train the epochs the first had saved; the last two are averaged."""
    from continual_crust.strategies.training import Phase

    state = scene.fresh("resumed")
    # Each checkpoint is one fsync and one replace: four moments. There are seven.
    assert in_child(lambda: scene.work(state), durable_call=4 * saved)
    assert (state / "work" / "checkpoint.safetensors").exists()
    epochs = []
    epoch = Phase.epoch
    monkeypatch.setattr(Phase, "epoch", lambda self, *sets: epochs.append(1) or epoch(self, *sets))
    scene.work(state)
    assert len(epochs) == 7 - saved
    assert scene.content(state) == scene.after


def test_a_checkpoint_that_cannot_be_read_is_not_needed(scene: Scene) -> None:
    for content in (b"", b"damaged", (10).to_bytes(8, "little") + b"{} " * 4):
        state = scene.fresh("unreadable")
        (state / "work").mkdir()
        (state / "work" / "checkpoint.safetensors").write_bytes(content)
        scene.work(state)
        assert scene.content(state) == scene.after


@pytest.mark.parametrize(("what", "rounds"), [(StudyScene, 2), (RunScene, 1)])
def test_random_kills_of_runs(what: type[Scene], rounds: int, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    scene, tally = what(tmp_path), Tally()
    moments = calls_of(scene)
    assert moments > 20  # a checkpoint after each of nine experiences, and the results
    for seed in range(rounds):
        one_round(scene, random.Random(seed), moments, tally)
    assert tally.struck
    assert (tally.unloadable, tally.different_ends, tally.left_behind) == (0, 0, 0)
