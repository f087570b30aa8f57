"""Studies: tables and figures of papers as TOML files, run at a scale, with claims judged."""
