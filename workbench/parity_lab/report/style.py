"""The style sheet of a report, for light and dark mode, desktop, phone and print.

`PARTS` styles the content of an element with the class `lab`, on any page that defines its variables.
"""

from __future__ import annotations

_COLOURS = """
:root { color-scheme: light dark; --ink: #1d232b; --quiet: #5d6673; --paper: #fff; --card: #f5f7f9; --line: #d8dde3;
  --good: #1a7f4b; --bad: #c0362c; --other: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --quiet: #9aa3af; --paper: #12161b; --card: #1b2129;
  --line: #333c47; --good: #58c48b; --bad: #ff8478; --other: #e3b75a; } }
"""
_DOCUMENT = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; } p { margin: .25rem 0 .5rem; }
"""
# The class appears twice, to win over the rules of a surrounding page.
PARTS = """
.lab.lab {
  .faint, figcaption { color: var(--quiet); font-size: .875rem; }
  .verdict { background: var(--card); border-left: .3rem solid var(--line); border-radius: .3rem;
    padding: .6rem .8rem; margin: .6rem 0; overflow-wrap: anywhere; }
  .verdict p { margin: .25rem 0; }
  .verdict ul { margin: .25rem 0; padding-left: 1.2rem; font-size: .875rem; color: var(--quiet); list-style: disc; }
  .verdict ul.found { font-size: inherit; color: inherit; }
  .verdict .is { display: flex; flex-wrap: wrap; gap: .1rem .75rem; margin: 0; font-weight: 600; }
  .within { border-color: var(--good); } .beyond { border-color: var(--bad); }
  .unavailable, .unusable { border-color: var(--other); }
  .within .is span { color: var(--good); } .beyond .is span { color: var(--bad); }
  .unavailable .is span, .unusable .is span { color: var(--other); }

  :is(.verdict, .scroll) + :is(h2, h3) { margin-top: 1rem; }
  .scroll { overflow-x: auto; max-width: 100%; } .tall { max-height: 40rem; overflow-y: auto; }
  table { width: auto; border-collapse: separate; border-spacing: 0; font-size: .8125rem;
    font-variant-numeric: tabular-nums; overflow-wrap: normal; }
  th, td { padding: .15rem .5rem; border: 0; border-bottom: 1px solid var(--line); text-align: right;
    vertical-align: top; white-space: nowrap; font-size: inherit; color: inherit; }
  th { font-weight: 600; } th[scope=row], th.text, th.wide { text-align: left; }
  td.wide { text-align: left; white-space: normal; min-width: 8rem; overflow-wrap: anywhere; }
  td.wide:last-child { min-width: min(16rem, 60vw); }
  tr.over > * { background: color-mix(in srgb, var(--bad) 14%, transparent); }
  .statistics { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
    gap: .5rem 1.5rem; margin-top: .75rem; }
  .statistics th[scope=row] { font-weight: 400; color: var(--quiet); white-space: normal; }
  .statistics th { padding-left: 0; } .statistics table { width: 100%; }
  .statistics td.wide:last-child { min-width: 8rem; }

  .heat { width: 100%; --row: 1.7rem; font-size: .75rem; }
  .heat th, .heat td { padding: .1rem .3rem; line-height: calc(var(--row) - .2rem); vertical-align: middle; }
  .heat thead th { position: sticky; top: 0; z-index: 2; background: var(--paper); text-align: center;
    line-height: calc(var(--row) - .2rem - 1px); height: var(--row); box-sizing: border-box; }
  .heat thead tr:nth-child(2) th { top: var(--row); font-weight: 400; color: var(--quiet); }
  .heat thead th > span { display: block; max-width: 12rem; margin: 0 auto; overflow: hidden;
    text-overflow: ellipsis; }
  .heat th[scope=row] { position: sticky; left: 0; z-index: 1; background: var(--paper); max-width: 40vw;
    min-width: 7rem; padding-left: 0; font-weight: 500; line-height: 1.3; white-space: normal;
    overflow-wrap: break-word; }
  .heat thead th[scope=row] { z-index: 3; text-align: left; font-weight: 600; vertical-align: bottom; }
  .heat td { min-width: 3rem; border: 0 solid var(--paper); border-width: 0 1px 1px 0; text-align: center; }
  .heat .said td { line-height: 1.25; white-space: pre; }
  .heat .known { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .heat .group th, .heat .group td { border-top: .3rem solid var(--paper); }
  .heat .group th { font-weight: 600; } .heat .group small { font-weight: 400; color: var(--quiet); }
  .heat .group label { display: block; cursor: pointer; }
  .heat .group input { width: .85rem; height: .85rem; margin: 0 .2rem 0 0; vertical-align: -.1rem; appearance: auto; }
  .heat .group ~ tr th { padding-left: 1.15rem; }
  .heat tbody:has(.group input:not(:checked)) tr:not(.group) { display: none; }
  .heat th button { padding: 0; border: 0; background: none; font: inherit; color: inherit; text-align: left;
    overflow-wrap: anywhere; cursor: pointer; }
  .heat [data-stage] { cursor: pointer; }
  .heat [data-stage]:hover th button, .heat .opened th button { text-decoration: underline; }
  .heat .opened th { box-shadow: inset .2rem 0 0 var(--ink); }
  .heat .opened th button { padding-left: .5rem; }
  .h0 { background: light-dark(#e3eef8, #172532); color: light-dark(#14202c, #c9d6e2); }
  .h1 { background: light-dark(#c5def0, #1b3950); color: light-dark(#14202c, #d8e5ef); }
  .h2 { background: light-dark(#98c6e3, #1f4f73); color: light-dark(#14202c, #e8f1f8); }
  .h3 { background: light-dark(#5fa4cf, #2a6a99); color: light-dark(#081018, #fff); }
  .h4 { background: light-dark(#f7d794, #6b5417); color: light-dark(#2a1d00, #ffedc2); }
  .h5 { background: light-dark(#ee8a52, #b4551c); color: light-dark(#2a0f00, #fff); font-weight: 600; }
  .h6 { background: light-dark(#b3202a, #d63a42); color: #fff; font-weight: 600; } .none { color: var(--quiet); }
  :is(.h0, .h1, .h2, .h3, .h4, .h5, .h6) { forced-color-adjust: none; }
  .key span { display: inline-block; padding: 0 .5rem; margin: 0 .25rem .25rem 0; font-size: .8125rem; }

  .pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: .75rem;
    margin-top: .5rem; }
  figure { margin: 0; } img { width: 100%; height: auto; display: block; } figure.broad { max-width: 44rem; }
  @media (max-width: 760px), (pointer: coarse) {
    .tall { max-height: min(40rem, 70vh); }
    .heat:has(th button) tbody :is(th, td) { height: 2.5rem; }
    .heat tbody th button { min-height: 2.5rem; }
    .heat .group label { padding: .5rem 0; }
  }
  details { margin: .5rem 0; } summary { cursor: pointer; font-size: .9rem; font-weight: 600; }
  pre { white-space: pre-wrap; background: var(--card); padding: .5rem; border-radius: .3rem; margin: .25rem 0;
    font-size: .8125rem; overflow-wrap: anywhere; }
}
"""
# In print nothing scrolls or sticks, tables are complete, and the heat map keeps its colours.
_PRINT = """
@media print {
  :root { color-scheme: light; --ink: #1d232b; --quiet: #5d6673; --paper: #fff; --card: #f5f7f9; --line: #d8dde3;
    --good: #1a7f4b; --bad: #c0362c; --other: #8a6100; }
  body { max-width: none; padding: 0; font-size: .8rem; }
  .lab.lab :is(.verdict, .heat, .key, tr.over) { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .lab.lab :is(.scroll, .tall) { overflow: visible; max-height: none; }
  .lab.lab .heat :is(thead th, th[scope=row]) { position: static; }
  .lab.lab .heat :is(th, td) { min-width: 0; padding: .1rem; }
  .lab.lab :is(.verdict, figure, .statistics table) { break-inside: avoid; }
  .lab.lab tr { break-inside: avoid; }
  h1, h2, h3 { break-after: avoid; }
}
"""
STYLE = _COLOURS + _DOCUMENT + PARTS + _PRINT
