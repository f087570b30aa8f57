"""What methods share: the base class, composition, the registry, and helpers of several methods."""
