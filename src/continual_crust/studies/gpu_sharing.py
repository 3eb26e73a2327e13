"""How several runs share one GPU: as processes under NVIDIA's Multi-Process Service, else as threads of one process.

Without the service, processes take turns on a GPU, and it does the work of one at a time. Threads of one process share
it, but wait for each other in Python and in the driver.
"""

from __future__ import annotations

import ctypes

import torch

DRIVER = "libcuda.so.1"
MPS_ENABLED = 133
"""The driver's number for the question whether contexts on a device are shared so, from the cuda.h of CUDA 12."""
START_MPS = "nvidia-cuda-mps-control -d"
"""The command that starts the service, for everybody with the same CUDA_MPS_PIPE_DIRECTORY."""


def processes_share(device: torch.device) -> bool:
    """Whether processes can use this device at the same time.

    The driver is asked, since it alone knows: the service may be another user's, or have died and left its files. What
    it says holds for processes that are started after this one as well. Drivers that do not know the question, and
    machines without a driver, share nothing.
    """
    if device.type != "cuda":
        return False
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return False
    handle, enabled = ctypes.c_int(), ctypes.c_int()
    index = torch.cuda.current_device() if device.index is None else device.index
    answers = (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(handle), index),
        driver.cuDeviceGetAttribute(ctypes.byref(enabled), MPS_ENABLED, handle),
    )
    return not any(answers) and enabled.value == 1


def load_linear_algebra(device: torch.device) -> None:
    """Have PyTorch load its linear algebra for this device now.

    It does so at the first call, and threads that make their first calls at the same time get ``lazy wrapper should be
    called at most once`` instead of an answer (PyTorch's issue 90613). All of it comes with one call.
    """
    if device.type == "cuda":
        torch.linalg.eigh(torch.eye(2, device=device))
