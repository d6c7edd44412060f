"""What the operator sees: slim frozen views of the cluster, and the store that the watches feed."""
