"""Hyper-parameter search: every method gets the same number of trials.

``plan`` holds the options of a search, ``split`` the validation part of the data, ``trials`` the
settings that are tried, ``choice`` the results of the trials, and ``search`` runs them all.
"""
