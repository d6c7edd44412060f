"""Which blocks of ports on the nodes' network belong to which resource, for those that draw one."""

from collections.abc import Iterable

from shardwright_operator.observe.views import ChildView, Key


class PortBlockBook:
    """Blocks by resource, of its stored revisions and its sets; most resources have none."""

    def __init__(self) -> None:
        self._blocks: dict[Key, frozenset[int]] = {}

    def changed(self, key: Key, children: Iterable[ChildView]) -> None:
        """Take in what a resource's children say now."""
        blocks = frozenset(child.port_block for child in children if child.port_block is not None)
        if blocks:
            self._blocks[key] = blocks
        else:
            self._blocks.pop(key, None)

    def of_others(self, key: Key) -> frozenset[int]:
        """Blocks that are not free to a resource."""
        return frozenset(block for other, blocks in self._blocks.items() if other != key for block in blocks)
