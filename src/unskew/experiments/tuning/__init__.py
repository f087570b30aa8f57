"""Hyper-parameter search: every method gets the same budget, in rounds of training.

``plan`` holds the options of a search, ``validation_split`` the validation part of the data,
``space`` what is searched, ``sampler`` proposes settings, ``method_search`` decides which of a
method's settings train further, ``choice`` holds the results, and ``search`` runs the searches of
all methods.
"""
