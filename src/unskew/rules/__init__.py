"""Pure functions of one round's uploads: who counts how much, and how rows become one vector."""
