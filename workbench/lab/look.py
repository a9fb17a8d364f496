"""How a report looks, in light and dark, on a desktop and on a phone."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1d232b; --quiet: #5d6673; --paper: #fff; --card: #f5f7f9; --line: #d8dde3;
  --good: #1a7f4b; --bad: #c0362c; --other: #8a6100; --link: #1f6fb5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --quiet: #9aa3af; --paper: #12161b; --card: #1b2129;
  --line: #333c47; --good: #58c48b; --bad: #ff8478; --other: #e3b75a; --link: #7db8ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; } p { margin: .25rem 0 .5rem; } a { color: var(--link); }
.quiet, figcaption, caption { color: var(--quiet); font-size: .875rem; } caption { text-align: left; }
.verdict { background: var(--card); border-left: .3rem solid var(--line); border-radius: .3rem; padding: .6rem .8rem;
  margin: .6rem 0; } .verdict ul { margin: .25rem 0; padding-left: 1.2rem; font-size: .9rem; }
.within { border-color: var(--good); } .beyond { border-color: var(--bad); }
.unavailable, .unusable { border-color: var(--other); }
.within > .is { color: var(--good); } .beyond > .is { color: var(--bad); } .is { font-weight: 600; }
.unavailable > .is, .unusable > .is { color: var(--other); }
.scroll { overflow-x: auto; max-width: 100%; } .tall { max-height: 40rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .15rem .5rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; }
th { font-weight: 600; } th[scope=row], th.text, th.wide { text-align: left; }
td.wide { text-align: left; white-space: normal; min-width: 14rem; overflow-wrap: anywhere; }
tr.over > * { background: color-mix(in srgb, var(--bad) 14%, transparent); }
.heat th[scope=row] { position: sticky; left: 0; background: var(--paper); max-width: 45vw; white-space: normal;
  overflow-wrap: break-word; }
.heat td { border: 1px solid var(--paper); padding: .1rem .35rem; min-width: 3.4rem; text-align: center; }
.heat thead th { text-align: center; }
.h0 { background: #e3eef8; color: #14202c; } .h1 { background: #c5def0; color: #14202c; }
.h2 { background: #98c6e3; color: #14202c; } .h3 { background: #5fa4cf; color: #081018; }
.h4 { background: #f7d794; color: #2a1d00; } .h5 { background: #ee8a52; color: #2a0f00; font-weight: 600; }
.h6 { background: #b3202a; color: #fff; font-weight: 600; } .none { color: var(--quiet); }
.key span { display: inline-block; padding: 0 .5rem; margin: 0 .25rem .25rem 0; font-size: .8125rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: .75rem; }
figure { margin: 0; } img { width: 100%; height: auto; display: block; } figure.broad { max-width: 44rem; }
details { margin: .5rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { white-space: pre-wrap; background: var(--card); padding: .5rem; border-radius: .3rem; margin: .25rem 0;
  font-size: .8125rem; }
"""
