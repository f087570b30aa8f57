"""The round loop, and the runners that train a cohort."""
