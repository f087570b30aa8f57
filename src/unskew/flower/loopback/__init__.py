"""A whole Flower federation on this machine, for a try: SuperLink, SuperNodes, one app."""
