"""A plugin for vLLM's CPU build, by which it takes the words that the operator renders for GPUs.

vLLM loads it in each of its processes. It changes three things of vLLM 0.32, each in a place that only the
CPU build has, or that a GPU's warm-up would have filled:

* A machine has one CPU where it has several GPUs, and vLLM takes the number of devices for that of ranks on a
  node ("assert local_message_queue is not None").
* In eager mode the buffers between pipeline stages are made by a warm-up run that the CPU worker leaves out
  ("assert self.intermediate_tensors is not None").
* The cache is a share of the machine's memory; several ranks on one machine would take it several times.
"""

import os

RANKS = "CPU_RANKS_PER_POD"
CACHE_BYTES = 64 * 1024**2


def register() -> None:
    """Called by vLLM."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    ranks = int(os.environ.get(RANKS, "1"))
    CpuPlatform.device_count = classmethod(lambda cls: ranks)
    if getattr(GPUModelRunner, "has_cpu_ranks", False):
        return
    GPUModelRunner.has_cpu_ranks = True

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
