"""Recipes that deal samples out to clients unevenly, and the diagnosis of the result."""
