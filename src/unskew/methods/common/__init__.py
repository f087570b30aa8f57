"""What methods share: the base class, composition, and helpers of several methods."""
