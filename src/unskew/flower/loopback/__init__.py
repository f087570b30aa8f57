"""A complete Flower federation on this machine, to try an app: SuperLink and SuperNodes."""
