"""One file a method, all on the hooks of :mod:`unskew.methods.common.base`."""
