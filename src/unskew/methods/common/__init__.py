"""What several methods share: masks of the head, server optimisers, a generator, and so on."""
