"""The small program in front of the engine: it checks the pod, passes signals on, and watches the group.

It is mounted into pods from a ConfigMap and runs under whatever Python the engine's image has, so that it
uses the standard library only (3.10 or newer) and imports nothing else of the operator.
"""
