"""Starter assets: CI files and scripts that really run the checks of a repository, written only where missing."""

from ratchet.projects.assets.writing import Written, asset_files, commit_assets, write_assets

__all__ = ["Written", "asset_files", "commit_assets", "write_assets"]
