"""A plugin for vLLM's CPU build, by which it takes the words that the operator renders for GPUs.

vLLM loads it in each of its processes. It changes five things of vLLM 0.32, each in a place that only the
CPU build has, or that a GPU's warm-up would have filled:

* A machine has one CPU where it has several GPUs, and vLLM takes the number of devices for that of ranks on a
  node ("assert local_message_queue is not None").
* In eager mode the buffers between pipeline stages are made by a warm-up run that the CPU worker leaves out
  ("assert self.intermediate_tensors is not None").
* The cache is a share of the machine's memory; several ranks on one machine would take it several times.
* Experts that are spread over data-parallel ranks trade tokens by two collectives that the CPU's communicator
  lacks ("all_gatherv ... NotImplementedError", at the first request).
* The kernel for experts takes every expert for one of its own and reads beyond its weights (a segmentation
  fault with expert parallelism, at the first request).
"""

import inspect
import os

RANKS = "CPU_RANKS_PER_POD"
CACHE_BYTES = 64 * 1024**2


def register() -> None:
    """Called by vLLM."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    ranks = int(os.environ.get(RANKS, "1"))
    CpuCommunicator.all_gatherv = _all_gatherv
    CpuCommunicator.reduce_scatterv = _reduce_scatterv
    CpuPlatform.device_count = classmethod(lambda cls: ranks)
    if getattr(GPUModelRunner, "has_cpu_ranks", False):
        return
    GPUModelRunner.has_cpu_ranks = True

    CPUUnquantizedExperts.apply = _with_own_experts(CPUUnquantizedExperts.apply)
    configure = CpuPlatform.check_and_update_config.__func__

    def configure_small(cls, config):
        config.cache_config.kv_cache_memory_bytes = CACHE_BYTES
        return configure(cls, config)

    CpuPlatform.check_and_update_config = classmethod(configure_small)
    gather = GPUModelRunner.sync_and_gather_intermediate_tensors

    def gather_into_buffers(self, *arguments, **named):
        if self.intermediate_tensors is None:
            self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
                batch_size=self.max_num_tokens, dtype=self.model_config.dtype, device=self.device
            )
        return gather(self, *arguments, **named)

    GPUModelRunner.sync_and_gather_intermediate_tensors = gather_into_buffers


def _all_gatherv(self, input_, dim=0, sizes=None):
    """Rows of all ranks in their order; Gloo gathers only equal shapes, hence rows that fill up."""
    import torch

    if isinstance(input_, list):
        return [_all_gatherv(self, each, dim, sizes) for each in input_]
    if dim != 0:
        raise NotImplementedError(dim)
    rows = sizes or [input_.shape[0]] * self.world_size
    padded = input_.new_zeros((max(rows), *input_.shape[1:]))
    padded[: input_.shape[0]] = input_
    gathered = [torch.empty_like(padded) for _ in rows]
    torch.distributed.all_gather(gathered, padded, group=self.device_group)
    return torch.cat([each[:count] for each, count in zip(gathered, rows, strict=True)])


def _reduce_scatterv(self, input_, dim=-1, sizes=None):
    """This rank's rows of the sum over all ranks."""
    import torch

    if dim != 0:
        raise NotImplementedError(dim)
    total = input_.contiguous().clone()
    torch.distributed.all_reduce(total, group=self.device_group)
    rows = sizes or [total.shape[0] // self.world_size] * self.world_size
    return total.split(rows)[self.rank_in_group].contiguous()


def _with_own_experts(apply):
    """The kernel with numbers of this rank's experts; another rank's gets the weight nothing."""
    signature = inspect.signature(apply)

    def applied(*arguments, **named):
        given = signature.bind(*arguments, **named).arguments
        numbers = given["expert_map"]
        if numbers is not None:
            own = numbers[given["topk_ids"].long()]
            given["topk_weights"] = given["topk_weights"].masked_fill(own < 0, 0.0)
            given["topk_ids"] = own.clamp(min=0).to(given["topk_ids"].dtype)
        return apply(**given)

    return applied
