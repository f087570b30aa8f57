"""What a person looks at: pictures, tables and the page of a run."""
