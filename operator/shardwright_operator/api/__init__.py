"""The resource as pydantic models, its names and constants, and the CRD generator."""
