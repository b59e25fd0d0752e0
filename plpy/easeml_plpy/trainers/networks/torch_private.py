"""Private parts of torch: each with the public call of the same result, which any release takes but those compared.

what is called                      public call                    what the private part saves
optimizer_class                     torch.optim.Adam and others    half of a small network's step; a second of imports
lerp                                Tensor.lerp_                   a call for each tensor
averaging_gradients                 DistributedDataParallel        two seconds of imports
Exchange                            init_process_group             a group that only its session ends

Both ways give the same bytes (tests/unit/plpy/trainers: test_torch_private.py, test_optimizers.py,
test_joint_training.py).
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, AdamW, Optimizer

COMPARED = ("2.13",)
"""Releases whose private parts the tests have seen; pyproject.toml ends before the next."""
OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
FUSED_KERNELS = {"adam": "_fused_adam_", "adamw": "_fused_adamw_"}
c10d: Any = distributed  # torch does not type all of its names
PATIENCE = timedelta(days=1)  # of waits that let a cancel through
CONNECT_SECONDS = 1.0  # for one attempt, of which gloo makes five
STORE_SECONDS = 5.0  # everybody is there by then


@cache
def has(*names: str) -> bool:
    """Return whether this release is one of those compared, and torch has these parts."""
    release = ".".join(torch.__version__.split(".")[:2])
    return release in COMPARED and all(hasattr(torch, name) for name in names)


# Optimisers


def optimizer_class(name: str) -> type[Optimizer]:
    """Return torch's optimiser of that name: the same steps, to the byte."""
    kind = OPTIMIZERS[name]
    kernel = FUSED_KERNELS.get(name, "")
    if not has():
        return kind
    plain = _without_compiler(kind)
    return _fused(plain, getattr(torch, kernel)) if kernel and has(kernel, "_foreach_add_") else plain


def _without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """Return the same optimiser with methods that do not import torch's compiler.

    Torch wraps them so that a compiled graph may contain them. We compile nothing, and the import would cost each new
    session more than a second at its first step.
    """
    wrapped = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, object] = {name: inspect.unwrap(getattr(kind, name)) for name in wrapped}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


def _fused(plain: Any, kernel: Any) -> type[Optimizer]:
    """Return the same Adam with a step that calls the fused kernel itself, once each parameter has its slots.

    Torch's own step makes the same call, but first sorts the parameters by device and type and looks for hooks.
    """

    class Fused(plain):  # type: ignore[misc]
        def step(self) -> None:
            (group,) = self.param_groups
            # In any order: no tensor's step depends on another's. Looking up each of them would take as long again.
            pairs = [(tensor, slots) for tensor, slots in self.state.items() if slots and tensor.grad is not None]
            n_with_gradient = sum(tensor.grad is not None for tensor in group["params"])
            if not group["fused"] or not pairs or len(pairs) < n_with_gradient:
                super().step()
                return
            means, squares, steps = ([slots[name] for _, slots in pairs] for name in ("exp_avg", "exp_avg_sq", "step"))
            beta, beta_of_squares = group["betas"]
            with torch.no_grad():
                torch._foreach_add_(steps, 1)
                kernel(
                    [tensor for tensor, _ in pairs], [tensor.grad for tensor, _ in pairs], means, squares, [], steps,
                    lr=group["lr"], beta1=beta, beta2=beta_of_squares, weight_decay=group["weight_decay"],
                    eps=group["eps"], amsgrad=False, maximize=False,
                )  # fmt: skip

        def zero_grad(self, set_to_none: bool = True) -> None:
            for parameter in self.param_groups[0]["params"]:
                parameter.grad = None

    return Fused


@torch.no_grad()
def lerp(averages: list[torch.Tensor], weights: list[torch.Tensor], share: float) -> None:
    """Move each average towards its weights by a share of the way."""
    if has("_foreach_lerp_"):
        torch._foreach_lerp_(averages, weights, share)
        return
    for average, weight in zip(averages, weights, strict=True):
        average.lerp_(weight, share)


# Gradients of several ranks


def averaging_gradients(
    module: nn.Module,
    devices: Sequence[torch.device] | None = None,
    process_group: distributed.ProcessGroup | None = None,
) -> nn.Module:
    """Wrap a network so that its backward pass averages gradients over the ranks of a group (None: of all)."""
    if not (has() and hasattr(DistributedDataParallel, "_inside_ddp_forward")):
        return DistributedDataParallel(module, device_ids=devices, process_group=process_group)
    with _compiler_left_out():
        return _Averaging(module, device_ids=devices, process_group=process_group)


class _Averaging(DistributedDataParallel):
    """Torch's wrapper without its calls to the compiler at each step, which would import the compiler."""

    @contextmanager
    def _inside_ddp_forward(self) -> Iterator[None]:
        yield


@contextmanager
def _compiler_left_out() -> Iterator[None]:
    """Answer in the compiler's place, which torch's wrapper asks for its mode: importing it takes two seconds."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    vars(torch)["_dynamo"] = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization"))
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]


# Groups of ranks


@dataclass(frozen=True)
class Exchange:
    """What ranks exchange tensors by: `gradients` wraps networks, `patient` waits for a peer for a day.

    Of a release that was compared they are one group, which torch does not list: its default group exists once in a
    process, and destroying it while a peer does the same sometimes aborts the process.
    """

    gradients: distributed.ProcessGroup
    patient: distributed.ProcessGroup
    store: Any
    is_private: bool

    @classmethod
    def over(cls, store_file: Path, rank: int, n_ranks: int, device: torch.device, timeout_seconds: float) -> Exchange:
        """Connect with the other ranks by a file; on a GPU over NCCL, otherwise over gloo on this machine."""
        store = c10d.FileStore(str(store_file), n_ranks)
        store.set_timeout(timedelta(seconds=STORE_SECONDS))
        timeout = timedelta(seconds=timeout_seconds)
        if has() and hasattr(distributed.ProcessGroup, "_register_backend"):
            group = _own_group(store, rank, n_ranks, device, timeout)
            group._set_group_name(distributed.GroupName(store_file.parent.name))
            return cls(group, group, store, is_private=True)
        if distributed.is_initialized():
            distributed.destroy_process_group()
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        kind = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(kind, store=store, rank=rank, world_size=n_ranks, timeout=timeout)
        world: Any = distributed.group.WORLD
        patient: Any = distributed.new_group(timeout=PATIENCE)
        return cls(world, patient, store, is_private=False)

    def broadcast(self, tensor: torch.Tensor) -> Any:
        """Begin to overwrite a tensor with that of rank 0."""
        if not self.is_private:
            return distributed.broadcast(tensor, 0, group=self.patient, async_op=True)
        options = distributed.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = 0, 0, PATIENCE
        return self.patient.broadcast([tensor], options)

    def gather(self, parts: list[torch.Tensor], tensor: torch.Tensor) -> Any:
        """Begin to fill the parts with the tensors of all ranks, in their order."""
        if not self.is_private:
            return distributed.all_gather(parts, tensor, group=self.patient, async_op=True)
        options = c10d.distributed_c10d.AllgatherOptions()
        options.timeout = PATIENCE
        return self.patient.allgather([parts], [tensor], options)


def _own_group(
    store: Any, rank: int, n_ranks: int, device: torch.device, timeout: timedelta
) -> distributed.ProcessGroup:
    group = distributed.ProcessGroup(store, rank, n_ranks)
    kinds = distributed.ProcessGroup.BackendType
    kind, made_by = (kinds.NCCL, _nccl) if device.type == "cuda" else (kinds.GLOO, _gloo)
    backend = made_by(store, rank, n_ranks)
    backend._set_default_timeout(timeout)
    group._register_backend(device, kind, backend)
    group._set_default_backend(kind)
    return group


def _gloo(store: Any, rank: int, n_ranks: int) -> Any:
    """Return gloo over the loopback interface: all slots of a segment are on one machine."""
    gloo: Any = distributed.ProcessGroupGloo  # torch does not type its options
    options = gloo._Options()
    options._timeout = timedelta(seconds=CONNECT_SECONDS)
    options._threads = 1
    options._devices = [gloo.create_device(hostname="127.0.0.1")]
    return gloo(store, rank, n_ranks, options)


def _nccl(store: Any, rank: int, n_ranks: int) -> Any:
    """Return NCCL, configured to report errors instead of ending the process."""
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "2"  # clean up only
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=STORE_SECONDS)
    return distributed.ProcessGroupNCCL(store, rank, n_ranks, options)
