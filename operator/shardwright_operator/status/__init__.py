"""Status: conditions and the whole ``status`` of a resource, computed from scratch in each pass. Pure."""
