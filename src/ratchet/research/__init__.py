"""Research: improving a recipe under real measurement, with lineage."""
