"""The two ends of a long text. The cause of a failed engine start tends to stand in the first lines, and what
it led to in the last ones; what lies between is the least telling part.
"""

_ROOM_FOR_GAP = 48


def head_and_tail(text: str, characters: int) -> str:
    """The text, or both its ends with a note between them; never longer than ``characters``."""
    if len(text) <= characters:
        return text
    half = (characters - _ROOM_FOR_GAP) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
