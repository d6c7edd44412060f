"""Durations and quantities in Kubernetes' notation, read into seconds and bytes and written in one form.

Children are compared with what stands in the cluster, hence each amount has exactly one spelling: the API
server would otherwise normalise ours and every pass would see a difference.
"""

import math
import re
from decimal import Decimal

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
"""Go's duration notation without signs and without units below a millisecond."""

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
"""Kubernetes' quantity notation without signs and exponents."""

_SECONDS = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (power + 1) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (power + 1) for power, unit in enumerate("KMGTPE")},
}
_BINARY_UNITS = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as ``150ms``, ``2.5s`` or ``1m30s``.

    Raises:
        ValueError: for anything else.
    """
    if re.fullmatch(DURATION_PATTERN, text) is None:
        msg = f"{text!r} is not a duration such as 150ms, 2.5s or 1m30s"
        raise ValueError(msg)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    return float(sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0)))


def format_duration(seconds: float) -> str:
    """The canonical text of a duration, to the millisecond: ``1h30m``, ``1m30s``, ``2.5s``, ``150ms``."""
    total_ms = round(seconds * 1000)
    if total_ms < 1000:
        return f"{total_ms}ms" if total_ms else "0s"
    minutes, rest_ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    return text + (f"{rest_ms / 1000:g}s" if rest_ms else "")


def parse_quantity(text: str | int) -> int:
    """Whole units (bytes for memory) of a quantity such as ``80Gi``, ``1.5G`` or ``4096``, rounded up.

    Raises:
        ValueError: for anything else.
    """
    return math.ceil(_quantity(text))


def format_bytes(amount: int) -> str:
    """The canonical quantity of a number of bytes: the largest binary unit that divides it."""
    for unit in _BINARY_UNITS:
        size = int(_UNITS[unit])
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def canonical_quantity(text: str | int) -> str:
    """A quantity as the API server itself would write it, for quantities of a spec that go into a child.

    Binary quantities keep their unit unless a larger one divides them (``1024Mi`` is ``1Gi``), decimal ones
    likewise (``1000m`` is ``1``); fractions move into a smaller unit (``1.5Gi`` is ``1536Mi``).

    Raises:
        ValueError: for anything that is not a quantity.
    """
    amount = _quantity(text)
    if str(text).endswith("i"):
        return format_bytes(math.ceil(amount))
    if amount != amount.to_integral_value():
        return f"{math.ceil(amount * 1000)}m"
    whole = int(amount)
    for unit in reversed("kMGTPE"):
        size = int(_UNITS[unit])
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return str(whole)


def _quantity(text: str | int) -> Decimal:
    if re.fullmatch(QUANTITY_PATTERN, str(text)) is None:
        msg = f"{text!r} is not a quantity such as 80Gi, 1.5G or 500m"
        raise ValueError(msg)
    number, unit = re.findall(r"^([0-9.]+)([a-zA-Z]*)$", str(text))[0]
    return Decimal(number) * _UNITS[unit]
