"""Nothing that was given to a person is ever unpickled, evaluated or unpacked to a place of its own choosing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

from field_images import write_images

SOURCE = Path(__file__).parent.parent / "src"
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.hub.load_state_dict_from_url", "pandas.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "eval", "exec", "compile", "os.system"),
}
METHODS = {"extractall", "extract", "unpack_archive", "read_pickle"}


def full_name(node: ast.expr, imported: dict[str, str]) -> str:
    """A dotted name, with the names of modules as they are really called."""
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, imported)}.{node.attr}"
    return imported.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def findings(text: str) -> list[str]:
    """What a source file does that could run something hidden in a file."""
    tree = ast.parse(text)
    imported: dict[str, str] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {
                alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names if alias.asname
            }
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found += [node.module] * (node.module.partition(".")[0] in MODULES)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = full_name(node.func, imported)
        if name in CALLS or (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
            found.append(name)
        plain = any(
            keyword.arg == "allow_pickle" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            for keyword in node.keywords
        )
        if name in ("numpy.load", "numpy.lib.format.read_array") and not plain:
            found.append(f"{name} without allow_pickle=False")
    return found


def test_no_source_file_can_run_what_a_file_holds() -> None:
    found = {file.name: findings(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py")}
    assert {name: finding for name, finding in found.items() if finding} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x', weights_only=True)",
        "from torch import load as get\nget('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import yaml\nyaml.load(text)",
        "import tarfile\ntarfile.open('x').extractall()",
        "eval('1')",
    ],
)
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert findings(text)


# A pickle that holds more than plain values asks for their types, which Python tells whoever listens.
LISTENING = """
import pathlib, pickle, sys
told = []
sys.addaudithook(lambda event, arguments: told.append(arguments) if event == "pickle.find_class" else None)
import continual_crust.cli as cli
for line in sys.stdin.read().splitlines():
    sys.argv = ["continual-crust", *line.split("|")]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, (line, ended.code)
from continual_crust.data import load_dataset
from continual_crust.devices import choose_device
from continual_crust.studies.run import load_run
load_run(pathlib.Path("R"), load_dataset("digits"), choose_device("cpu"))
print("unpickled:", told)
pickle.loads(pickle.dumps(pathlib.Path()))
print("heard:", len(told))
"""


def test_no_command_unpickles_anything(tmp_path: Path) -> None:
    digits = load_digits()
    for digit in (0, 1):
        write_images(
            tmp_path / "images" / str(digit), (digits.images[digits.target == digit][:12] * 15).astype("uint8")
        )
    (tmp_path / "r.csv").write_text("file,class,mark,new_class\n0/0.png,0,wrong,\n")
    (tmp_path / "study.yaml").write_text(
        "id: s\ntitle: t\ndatasets: [digits]\nmethods: [replay]\nseeds: 1\nmemory: [3]\n"
        "overrides: {phase1_epochs: 1, phase2_epochs: 0, first_classes: 5, classes_per_experience: 5}\n"
    )
    commands = [
        "learn|S|images|-m|1|-n|1|-k|4|--device|cpu",
        "learn|S|--review|r.csv|--device|cpu",
        "predict|S|images|--device|cpu",
        "info|S",
        "review|S|--no-open",
        "run|--dataset|digits|--method|crust|-m|1|-n|0|-k|3|--first-classes|5|--classes-per-experience|5|--out|R",
        "study|run|study.yaml|--workers|1|--device|cpu",
        "study|status|runs/s",
    ]
    done = subprocess.run(
        [sys.executable, "-c", LISTENING],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-2:] == ["unpickled: []", "heard: 1"]
