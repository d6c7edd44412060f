"""The operator: the ModelDeployment resource, its manifests, and the reconcile loop."""
