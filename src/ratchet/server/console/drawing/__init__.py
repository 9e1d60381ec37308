"""Drawings as plain numbers and texts; templates turn them into SVG."""
