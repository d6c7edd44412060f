"""Elements of HTML and SVG as escaped text.

Plain text is escaped wherever it enters, so that a model named ``<script>`` stays a name; only what came out
of ``element`` passes as it is.
"""

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "hr", "col"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str | Markup, **attributes: object) -> Markup:
    """An element. ``class_`` stands for class and ``_`` for ``-``; attributes that are None are left out."""
    written = "".join(
        f' {_attribute(key)}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[str | Markup]) -> Markup:
    """Parts one after the other, plain text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def _attribute(key: str) -> str:
    return "viewBox" if key == "view_box" else key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    # One decimal is a tenth of a pixel; more would only make the file longer.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
