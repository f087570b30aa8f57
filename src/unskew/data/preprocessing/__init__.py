"""Federated preprocessing: raw columns become features, from statistics that clients send.

Clients send counts, sums and lists; the server merges them into one :class:`Transform`, which
every client applies to its rows. ``docs/tables.md`` describes what leaves a client.
"""
