"""Hyper-parameter search as papers do it: every method gets the same number of trials.

``plan`` is what is asked for, ``split`` the validation part, ``trials`` the settings that are
tried, ``choice`` what came out, and ``search`` puts them together.
"""
