"""The look of the report: one style sheet, in the page itself, for light and dark, for a screen and for a phone."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfa; --ink: #1d2125; --soft: #626a72; --line: #e3e4df; --panel: #f4f4ef;
  --good: #1f7a4d; --bad: #b3261e;
  --c0: #3a6ea5; --c1: #d08b2c; --c2: #5a9b78; --c3: #93689e; --c4: #4fa3a8; --c5: #b5654a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e7e4; --soft: #9aa2aa; --line: #2b3036; --panel: #1b1f23;
    --good: #5fc08d; --bad: #f2857d;
    --c0: #6d9fd3; --c1: #dfa655; --c2: #7db998; --c3: #b58fc0; --c4: #74bfc4; --c5: #d08a70;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 860px; margin: 0 auto; padding: 48px 24px 64px; }
.title { margin: 0; font-size: 14px; font-weight: 500; color: var(--soft); }
h1 { margin: 6px 0 28px; font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; }
h1.good { color: var(--good); }
h1.bad { color: var(--bad); }
h2 { margin: 48px 0 4px; font-size: 17px; font-weight: 650; letter-spacing: -0.005em; }
p.note { margin: 0 0 14px; color: var(--soft); font-size: 14px; max-width: 66ch; }
.verdict { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); border-top: 2px solid var(--ink); }
.verdict > div { padding: 14px 0 10px; }
.verdict .count { font-size: 76px; line-height: 1; font-weight: 600; letter-spacing: -0.04em; }
.verdict .word { margin-top: 8px; color: var(--soft); }
.others {
  display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); border-top: 1px solid var(--line);
  border-bottom: 1px solid var(--line); padding: 12px 0;
}
.others .count { font-size: 20px; font-weight: 600; }
.others .word { color: var(--soft); font-size: 13px; }
.fault { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 7px 0 7px 18px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-weight: 500; color: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; font-weight: 550; }
tr:last-child td { border-bottom: 0; }
td.none { color: var(--soft); }
td.fault { font-weight: 650; }
figure { margin: 0; }
figure svg { display: block; max-width: 100%; height: auto; overflow: visible; }
figure .narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 10px; padding: 0; list-style: none; }
.legend { font-size: 14px; }
.legend li { display: flex; align-items: center; gap: 7px; }
.legend i { width: 11px; height: 11px; border-radius: 2px; }
.legend .of { color: var(--soft); }
svg text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick { fill: var(--soft); }
svg .rule { stroke: var(--line); stroke-width: 1; }
svg .mark line { stroke: currentColor; stroke-width: 1; stroke-dasharray: 2 3; opacity: 0.75; }
svg .mark path, svg .mark circle, svg .mark rect { fill: currentColor; }
svg.mark path, svg.mark circle, svg.mark rect { fill: currentColor; }
.m0 { color: var(--bad); } .m1 { color: var(--ink); } .m2 { color: var(--soft); }
svg .plain { fill: var(--soft); opacity: 0.7; }
svg .thin { stroke: var(--soft); stroke-width: 1; }
svg .most { stroke: var(--soft); stroke-width: 1.5; }
svg .middle { stroke: var(--paper); stroke-width: 2; }
.c0 { fill: var(--c0); background: var(--c0); } .c1 { fill: var(--c1); background: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); } .c3 { fill: var(--c3); background: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); } .c5 { fill: var(--c5); background: var(--c5); }
.examples { margin: 0; padding: 12px 16px; background: var(--panel); border-radius: 6px; list-style: none; }
.examples { font-size: 14px; }
.examples li { overflow-wrap: anywhere; padding: 2px 0; }
h3 { margin: 18px 0 0; font-size: 14px; font-weight: 600; }
h3 span { font-weight: 400; color: var(--soft); }
footer { margin-top: 56px; padding-top: 14px; border-top: 1px solid var(--line); font-size: 13px; color: var(--soft); }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 0; }
footer dt { color: var(--soft); }
footer dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
footer code { font: 12.5px ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
@media (max-width: 640px) {
  main { padding: 28px 16px 48px; }
  h1 { font-size: 24px; margin-bottom: 20px; }
  .verdict .count { font-size: 58px; }
  .others { grid-template-columns: repeat(2, minmax(0, 1fr)); row-gap: 10px; }
  figure .wide { display: none; }
  figure .narrow { display: block; }
}
@media print { body { background: none; } main { padding: 0; } }
"""
