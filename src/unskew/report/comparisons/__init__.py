"""The summary of several comparisons: methods over federations."""
