"""What acts show in the report, drawn as SVG: no script, no image, light and dark by the page's own colours."""
