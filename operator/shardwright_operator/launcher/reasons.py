"""Why the launcher ended a pod's container: the words that the operator turns into reasons of conditions.

They are texts here, because the operator's own enumerations are not in the pod; a test holds the two
together.
"""

OUT_OF_MEMORY = "OutOfMemory"
GPU_LOST = "GpuLost"
MODEL_NOT_FOUND = "ModelNotFound"
ACCESS_DENIED = "AccessDenied"
RENDEZVOUS_TIMEOUT = "RendezvousTimeout"
STARTUP_TIMEOUT = "StartupTimeout"
PEER_LOST = "PeerLost"
ENGINE_STALLED = "EngineStalled"
CONFIG_REJECTED = "ConfigRejected"
UNKNOWN = "Unknown"

ALL = (
    OUT_OF_MEMORY,
    GPU_LOST,
    MODEL_NOT_FOUND,
    ACCESS_DENIED,
    RENDEZVOUS_TIMEOUT,
    STARTUP_TIMEOUT,
    PEER_LOST,
    ENGINE_STALLED,
    CONFIG_REJECTED,
    UNKNOWN,
)

EXIT_INPUT = 66
"""Exit code when the model is not there or not for us: another attempt ends in the same way (EX_NOINPUT of
sysexits.h). The download's Job counts on it."""


class LauncherError(Exception):
    """The container is to end: a reason, and a text that says what is wrong with which value."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
