"""What the report of a study adds to the look of the pages."""

from continual_crust.report.matrix_viewer import shades
from continual_crust.report.page_style import CSS


def study_css() -> str:
    """The whole style of the page."""
    return f"{CSS}{_CSS}{shades()}\n"


_CSS = """
:root { --accent: #0b5c94; --mark: #8a5a00; --mark-ground: #fff3d6; }
@media (prefers-color-scheme: dark) {
  :root { --accent: #7cc0f0; --mark: #ffcf70; --mark-ground: #3a2f14; }
}
html { scroll-padding-top: 1rem; }
a { color: var(--accent); unicode-bidi: isolate; }
h2.study { font-size: 1.45rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h1, h2, h3, p, li, summary, figcaption { overflow-wrap: anywhere; }
td, th { overflow-wrap: break-word; }
.caption { font-weight: 600; margin: 1rem 0 .2rem; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.flow { display: flex; flex-wrap: wrap; gap: 0 2rem; align-items: flex-start; }
.flow > * { min-width: 0; max-width: 100%; }
.scroll { max-width: 100%; margin: .6rem 0; position: relative; }
caption { text-align: left; font-weight: 600; padding: .3rem 0 .5rem; }
table { border-spacing: 0; }
tbody th { font-weight: 600; text-align: left; }
tbody tr:last-child > * { border-bottom: 0; }
.numbers th:first-child { position: sticky; left: 0; z-index: 1; background: var(--card);
  border-right: 1px solid var(--line); white-space: normal; min-width: 7rem; max-width: 12rem; }
.numbers th, .numbers td { padding: .4rem .6rem; }
.numbers td { vertical-align: top; line-height: 1.35; }
.numbers td > * { display: block; }
.numbers td b { font-size: 1.02rem; }
.numbers .small { color: var(--soft); font-size: .8rem; }
.numbers .missing { color: var(--soft); font-style: italic; }
.numbers .outside { background: var(--mark-ground); }
.numbers .outside .apart { color: var(--mark); font-weight: 700; }
.plain td { white-space: normal; text-align: left; }
.plain th { text-align: left; }
.differs { color: var(--mark); font-weight: 600; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem; margin: .6rem 0; }
details { margin: .6rem 0; }
summary { cursor: pointer; padding: .35rem 0; font-weight: 600; }
.controls { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; }
.controls[hidden] { display: none; }
.controls label { display: flex; gap: .5rem; align-items: center; max-width: 100%; min-width: 0; }
.controls select { min-width: 0; max-width: 100%; }
.controls select, .controls button { font: inherit; color: var(--ink); background: var(--ground);
  border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .6rem; min-height: 2.75rem; }
.controls button { min-width: 2.75rem; cursor: pointer; }
.steps { display: flex; gap: .5rem; align-items: center; flex: 1 1 16rem; max-width: 28rem; }
.steps input { flex: 1; min-width: 4rem; min-height: 2.75rem; accent-color: var(--accent); }
.controls output { flex-basis: 100%; min-height: 1.5em; }
.panel[hidden] { display: none; }
.matrix { border: 0; }
.matrix th, .matrix td { border: 0; padding: .35rem .3rem; text-align: center; min-width: 2.5rem; }
.matrix tbody th, .matrix thead th:first-child { text-align: left; font-weight: 400; padding-right: .8rem; }
.matrix caption { font-weight: 400; color: var(--soft); font-size: .9rem; }
.matrix .later td { visibility: hidden; }
.matrix .later th { opacity: .55; }
.matrix .now th { font-weight: 700; }
.matrix .now td:not(:empty) { box-shadow: inset 0 3px 0 var(--accent), inset 0 -3px 0 var(--accent); }
.wide figure { max-width: 44rem; }
/* Black shall be seen on black. */
.dot { box-shadow: 0 0 0 1px var(--soft); }
@media (max-width: 34rem) {
  .numbers th:first-child { min-width: 5.2rem; max-width: 8rem; font-size: .78rem; padding: .4rem .3rem; }
  .numbers td, .numbers th { padding: .4rem .45rem; font-size: .85rem; }
  .matrix th, .matrix td { padding: .3rem .1rem; min-width: 1.72rem; font-size: .72rem; }
  .matrix tbody th { padding-right: .4rem; }
}
@media print {
  .controls { display: none; }
  .panel[hidden] { display: block; }
  .matrix .later td { visibility: visible; }
  /* Paper cannot be scrolled. */
  .scroll { overflow: visible; }
  .numbers th, .numbers td { padding: .2rem .25rem; font-size: .7rem; }
  .numbers td b, .numbers .small { font-size: inherit; }
  /* Colours say something here, and browsers save ink. */
  .matrix td, .dot { print-color-adjust: exact; }
}
"""
