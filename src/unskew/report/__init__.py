"""Reports: charts, tables and the HTML page of a comparison."""
