"""How the page looks, on top of the pages of research: light and dark, from what the browser prefers."""

from __future__ import annotations

from ratchet.research.views._report.style import CSS as RESEARCH

CSS = (
    RESEARCH
    + """
:root { --second: #0b7d4f; --first: #3566c0; --third: #7b3fa0; --mark: #7a4a00; --mark-page: #fff3dc; }
@media (prefers-color-scheme: dark) {
  :root { --second: #4cc38a; --first: #7aa5f0; --third: #cf9bf0; --mark: #f0c987; --mark-page: #3a2d14; }
}
body { max-width: 920px; }
a { color: var(--base); }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 14px 0 6px; }
section { border-top: 1px solid var(--line); margin-top: 34px; padding-top: 4px; }
h2 { font-size: 20px; margin: 18px 0 6px; display: flex; flex-wrap: wrap; gap: 10px; align-items: center; }
h3 { font-size: 14px; margin: 20px 0 6px; color: var(--soft); }
.lead { font-size: 16px; }
.badge { font-size: 12px; font-weight: 600; padding: 2px 9px; border-radius: 10px; border: 1px solid currentcolor; }
.badge.real { color: var(--keep); } .badge.failed { color: var(--crash); }
.badge.simulated { color: var(--mark); background: var(--mark-page); }
.recorded { border-left: 3px solid var(--mark); background: var(--mark-page); padding: 8px 12px; border-radius: 4px; }
.fact b { font-size: 16px; }
.picture { margin: 14px 0; overflow-x: auto; }
.picture .wide { overflow: visible; min-width: min-content; }
.wide svg { border: 0; border-radius: 8px; }
svg.plot { min-width: 560px; }
.edge { stroke: var(--faint); }
svg .mono { font-family: ui-monospace, Menlo, Consolas, monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 18px; }
figure { margin: 0; width: min(250px, 45%); } figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
figure svg { width: 100%; }
.packed { fill: var(--second); fill-opacity: 0.3; stroke: var(--second); }
.box { fill: var(--page); stroke: var(--faint); stroke-width: 1.2; }
.box.good { stroke: var(--keep); } .box.bad { stroke: var(--crash); stroke-dasharray: 5 3; }
.bar, .first { fill: var(--first); } .second { fill: var(--second); } .third { fill: var(--third); }
.block.none { fill: var(--line); }
.cross { stroke: var(--crash); stroke-width: 3; fill: none; stroke-linecap: round; }
.key-first { background: var(--first); } .key-second { background: var(--second); }
.key-third { background: var(--third); }
dl.look { display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: 4px 18px; margin: 8px 0; }
dl.look dt { font: 13px/1.6 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl.look dd { margin: 0; color: var(--soft); }
@media (max-width: 640px) {
  dl.look { grid-template-columns: minmax(0, 1fr); gap: 0; } dl.look dd { margin-bottom: 8px; }
}
"""
)
