"""On a GPU: repeatable, and the same alone as in company."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.models import build_model
from continual_crust.strategies import STRATEGIES, Naive, Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.engines import local_engine
from continual_crust.studies.folder import StudyFolder
from continual_crust.studies.run import execute
from continual_crust.studies.study_file import parse_study
from continual_crust.studies.work import Workplace
from gpu_parts import MPS, mps_of_its_own
from test_study_engines import SMALL, measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


STUDY = SMALL.replace("seeds: 2", "seeds: 3").replace("[replay, crust]", "[der, icarl, crust, cosine_crust]")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """One run after the other, in this process."""
    return measured(in_this_process(tmp_path_factory.mktemp("alone"), workers=1))


def in_this_process(path: Path, workers: int) -> Path:
    folder = StudyFolder.create(path / "small", parse_study(STUDY, "small"), STUDY)
    events = local_engine(workers)(list(folder.study.runs()), Workplace(folder.path, device="cuda"))
    assert {event.kind for event in events} == {"experience", "done"}
    return folder.path


def test_threads_end_in_the_same_bits_as_alone(tmp_path: Path, alone) -> None:
    found = measured(in_this_process(tmp_path, workers=6))
    assert len(found) == 12
    assert found == alone


@pytest.mark.skipif(shutil.which(MPS) is None, reason="there is no Multi-Process Service")
def test_processes_end_in_the_same_bits_as_alone(tmp_path: Path, alone) -> None:
    """In a new process, as this one may have used the GPU before the service was there."""
    (tmp_path / "small.yaml").write_text(STUDY)
    options = ["--out", "out", "--workers", "6", "--device", "cuda"]
    study = [sys.executable, "-m", "continual_crust", "study", "run", "small.yaml", *options]
    with mps_of_its_own() as service:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160", **service}
        done = subprocess.run(study, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "as threads" not in done.stdout
    assert measured(tmp_path / "out" / "small") == alone


def test_first_calls_of_linear_algebra_in_threads() -> None:
    """In a new process, since PyTorch loads it once; see `load_linear_algebra`."""
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FIRST_CALLS = """
from concurrent.futures import ThreadPoolExecutor
import torch
from continual_crust.studies.gpu_sharing import load_linear_algebra
load_linear_algebra(torch.device("cuda"))
with ThreadPoolExecutor(8) as pool:
    list(pool.map(torch.linalg.eigvalsh, [torch.eye(4, device="cuda")] * 64))
    list(pool.map(torch.linalg.inv, [torch.eye(4, device="cuda")] * 64))
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", list(STRATEGIES))
def test_every_method_learns(method: str, precision: str, few_digits: Dataset) -> None:
    training = Training(phase1_epochs=20, phase2_epochs=10, memory_per_class=20, precision=precision)
    config = RunConfig("digits", method, "simple_cnn", Noise.parse("none"), 0, training)
    result = execute(config, few_digits, torch.device("cuda")).result
    # With forty images of each class to judge, Sift ends anywhere between 0.79 and 0.94 on a CPU.
    assert result.accuracy > {"naive": 0.3, "sift": 0.7, "sift_oracle": 0.7}.get(method, 0.85)


def test_experience_after_experience_needs_no_more_memory(digits: Dataset) -> None:
    """Whatever was recorded for one is given back, or a few runs of a large network would fill any GPU."""
    stream = Stream(digits, Noise.parse("none"), seed=0)
    model = build_model("resnet18", digits.image_shape, digits.classes, seed=0)
    learner = Naive(model, Training(phase1_epochs=2, phase2_epochs=0), device="cuda")
    reserved = []
    for experience in stream:
        learner.learn(experience)
        reserved.append(torch.cuda.memory_reserved())
    assert max(reserved[1:]) <= 1.2 * reserved[1]
