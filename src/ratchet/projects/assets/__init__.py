"""Starter assets: CI files and scripts that really run the checks of a repository, written only where missing."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.projects.assets.writing import Written, asset_files, commit_assets, write_assets
else:
    __getattr__ = on_demand(__name__)

__all__ = ["Written", "asset_files", "commit_assets", "write_assets"]
