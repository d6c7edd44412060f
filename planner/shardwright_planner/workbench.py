"""Everything computed once per pool and shared by its candidates: sizes, cache layouts, rules, verdicts.

Layouts of one pool share tensor sizes, and a search tries up to a hundred of them within 20 ms; what depends
on the tensor size alone is therefore kept here.
"""

from dataclasses import replace

from shardwright_planner.kvcache import CacheTable
from shardwright_planner.latency import Latency, StepClock
from shardwright_planner.layout import Layout
from shardwright_planner.legality import Legality
from shardwright_planner.memory import Fit, assess
from shardwright_planner.partition import balanced_partition
from shardwright_planner.request import ServiceLevel
from shardwright_planner.setting import Setting
from shardwright_planner.weights import WeightTable

ROOMIER = 1.05  # a partition of our own is worth a variable in the pods' environment from here on


class Workbench:
    """One pool's complete problem with its shared tables."""

    def __init__(
        self, setting: Setting, *, table: WeightTable | None = None, legality: Legality | None = None
    ) -> None:
        self.setting = setting
        self.table = table or WeightTable(setting.model, setting.dtype_bytes, setting.engine)
        self.legality = legality or Legality(setting.model, setting.engine, setting.executor)
        self.caches = CacheTable(
            setting.model, setting.cache_bytes, setting.cache_dtype, keeps_windows=setting.keeps_windows
        )

    def at(self, service_level: ServiceLevel) -> "Workbench":
        """The same pool under another service level."""
        changed = replace(self.setting, service_level=service_level)
        return Workbench(changed, table=self.table, legality=self.legality)

    def fit(self, layout: Layout) -> Fit:
        """Memory of a layout."""
        return assess(self.setting, self.table, self.caches.layout(layout.tensor), layout)

    def clock(self, layout: Layout) -> StepClock:
        """The clock of a layout's steps."""
        return StepClock(self.setting, self.table, layout)

    def latency(self, layout: Layout) -> Latency:
        """Latencies of a layout at the stated concurrency."""
        return self.clock(layout).latency()

    def rebalanced(self, layout: Layout, fit: Fit) -> tuple[Layout, Fit]:
        """The layout with stages evened out by bytes, where that leaves less missing than vLLM's own split.

        The last stage of a large model runs out first (head, sampler, one layer more): on three nodes of 8 x
        80 GB a 16-bit DeepSeek needs another split than the engine's. Mixed cache groups keep the engine's
        split, whose strides balance them.
        """
        lacking = sum(stage.missing for stage in fit.stages)
        spare = sum(stage.free + stage.cache for stage in fit.stages)
        if not 0 < lacking <= spare:
            return layout, fit
        found = self._evened(layout, fit)
        return found if found is not None and found[1].missing_bytes < fit.missing_bytes else (layout, fit)

    def roomier(self, layout: Layout, fit: Fit) -> tuple[Layout, Fit] | None:
        """The layout with stages evened out by bytes, where that holds a twentieth more cache or better."""
        found = self._evened(layout, fit)
        return found if found is not None and found[1].blocks >= ROOMIER * fit.blocks else None

    def _evened(self, layout: Layout, fit: Fit) -> tuple[Layout, Fit] | None:
        if not fit.cache.is_uniform or fit.cache.sizes:
            return None
        costs = self.table.costs(layout)
        per_layer = [costs[kind].resident_bytes for kind in self.setting.model.layers]
        token = fit.cache.page_bytes // fit.cache.block_tokens
        budgets = [room - ends for room, ends in zip(fit.rooms, self._ends(layout), strict=True)]
        sizes = balanced_partition(per_layer, [token] * len(per_layer), budgets)
        if sizes is None or sizes == layout.partition:
            return None
        other = replace(layout, partition=sizes, own_partition=False)
        return other, self.fit(other)

    def _ends(self, layout: Layout) -> list[int]:
        return [self.table.ends_bytes(layout, stage) for stage in range(layout.pipeline)]
