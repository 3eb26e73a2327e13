"""On a GPU: repeatable, and the same alone as in company."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from continual_crust.data import Dataset, Noise
from continual_crust.strategies import STRATEGIES, Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.engines import local_engine
from continual_crust.studies.folder import StudyFolder
from continual_crust.studies.run import execute
from continual_crust.studies.study import parse_study
from continual_crust.studies.work import Workplace
from test_study_engines import SMALL, measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_runs_end_in_the_same_bits_alone_and_together(tmp_path: Path) -> None:
    text = SMALL.replace("seeds: 2", "seeds: 4").replace("methods: [replay, crust]", "methods: [der, icarl, crust]")
    found = []
    for workers in (1, 6):
        folder = StudyFolder.create(tmp_path / str(workers) / "small", parse_study(text, "small"), text)
        events = local_engine(workers)(list(folder.study.runs()), Workplace(folder.path, device="cuda"))
        assert {event.kind for event in events} == {"experience", "done"}
        found.append(measured(folder.path))
    assert len(found[0]) == 12
    assert found[0] == found[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", list(STRATEGIES))
def test_every_method_learns(method: str, precision: str, few_digits: Dataset) -> None:
    training = Training(phase1_epochs=20, phase2_epochs=10, memory_per_class=20, precision=precision)
    config = RunConfig("digits", method, "simple_cnn", Noise.parse("none"), 0, training)
    result = execute(config, few_digits, torch.device("cuda")).result
    assert result.accuracy > (0.3 if method == "naive" else 0.85)
