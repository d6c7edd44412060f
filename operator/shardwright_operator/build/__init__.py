"""Pure builders: a revision and a group index in, manifests out. One module per child kind."""
