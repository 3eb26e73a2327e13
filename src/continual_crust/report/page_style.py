"""How the page looks, in light and dark, from a phone's width up."""

from continual_crust.report.styles import WRONG

CSS = f"""
:root {{ color-scheme: light dark; --ground: #f6f6f3; --card: #ffffff; --ink: #1d1f21; --soft: #5a5f66;
  --line: #dcdcd6; --wrong: {WRONG}; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #15171a; --card: #1f2226; --ink: #ececea; --soft: #a9afb7; --line: #383d44;
    --wrong: #ff6b6b; }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
main {{ max-width: 82rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }}
h1 {{ font-size: clamp(1.35rem, 1rem + 1.4vw, 1.9rem); line-height: 1.25; margin: 0 0 .6rem;
  text-wrap: balance; }}
h2 {{ font-size: 1.15rem; margin: 2rem 0 .6rem; }}
p {{ max-width: 60rem; margin: .4rem 0; }}
.soft {{ color: var(--soft); font-size: .9rem; }}
.wrong {{ color: var(--wrong); font-weight: 600; }}
.side {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  margin-top: 1rem; align-items: start; }}
/* Four are two rows of two, not three and one. */
.side:has(> :nth-child(4):last-child) {{ grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }}
/* Alone in its row, a sheet of a few small images would be blown up. */
.side > figure {{ max-width: 44rem; }}
figure {{ margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  overflow: hidden; }}
figcaption {{ padding: .6rem .8rem .2rem; }}
figcaption strong {{ font-size: 1.15rem; }}
/* Figures are drawn in dark ink, so they keep their white paper in the dark. */
img {{ display: block; width: 100%; height: auto; background: #fff; padding: .4rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; background: var(--card); border: 1px solid var(--line); }}
th, td {{ padding: .45rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }}
thead th {{ color: var(--soft); font-weight: 600; }}
th:first-child {{ text-align: left; }}
.dot {{ display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .5em; }}
.spread {{ color: var(--soft); }}
code {{ background: var(--card); border: 1px solid var(--line); border-radius: .3rem; padding: .1rem .4rem; }}
@media (max-width: 34rem) {{
  th, td {{ padding: .35rem .22rem; font-size: .75rem; }}
  thead th {{ white-space: normal; font-size: .7rem; }}
  .dot {{ margin-right: .3em; }}
  .spread {{ display: block; }}
}}
"""
