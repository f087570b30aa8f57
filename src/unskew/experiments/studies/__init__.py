"""Studies: the tables and figures of papers as files, played at a scale, each claim judged."""
