"""The style of results in notebooks, in light and in dark mode.

A notebook has a theme of its own, which may differ from that of the system: JupyterLab and Notebook 7 say it on
`data-jp-theme-light`, VS Code in a class of the body, Colab in the attribute `theme`. Where none of them says it,
`color-scheme` takes the reader's preference. Background and ink are always chosen together, so that a text can be read
on any page.
"""

from __future__ import annotations

STYLE = """
.workbench-value.workbench-value { color-scheme: light dark; box-sizing: border-box; max-width: 60rem;
  margin: .25rem 0; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--jp-layout-color0, var(--vscode-editor-background, Canvas));
  color: var(--jp-content-font-color1, var(--vscode-editor-foreground, CanvasText));
  font: .875rem/1.5 system-ui, sans-serif; text-align: left; overflow-wrap: anywhere;
  --line: light-dark(#d8dde3, #3a434e); --quiet: light-dark(#5d6673, #9aa3af); --fill: light-dark(#e3eef8, #1b3950);
  --mark: light-dark(#2f7fc1, #6db3ee); --good: light-dark(#1a7f4b, #58c48b); --bad: light-dark(#c0362c, #ff8478); }
@media (prefers-color-scheme: dark) { .workbench-value.workbench-value { color-scheme: dark; } }
:is([data-jp-theme-light=true], .vscode-light, .vscode-high-contrast-light, html[theme=light])
  .workbench-value.workbench-value { color-scheme: light; }
:is([data-jp-theme-light=false], .vscode-dark, .vscode-high-contrast:not(.vscode-high-contrast-light),
  html[theme=dark]) .workbench-value.workbench-value { color-scheme: dark; }
.workbench-value.workbench-value.workbench-value {
  p { margin: .15rem 0; } .title { font-weight: 600; } .quiet, figcaption, .notes { color: var(--quiet); }
  .quiet, figcaption, .notes, details { font-size: .8125rem; } .notes { margin: .25rem 0; padding-left: 1.1rem; }
  .text { font-size: 1.0625rem; white-space: pre-wrap; margin: .35rem 0; }
  .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
  .facts span { white-space: nowrap; }
  .scroll { overflow: auto; max-height: 24rem; max-width: 100%; margin: .35rem 0; }
  table { width: auto; margin: 0; border-collapse: collapse; border: 0; font-size: .8125rem;
    font-variant-numeric: tabular-nums; table-layout: auto; }
  thead { border: 0; background: transparent; } tbody tr { background: transparent; }
  tbody tr:nth-child(odd), tbody tr:nth-child(even), tbody tr:hover { background: transparent; }
  th, td { padding: .15rem .6rem .15rem 0; border: 0; border-bottom: 1px solid var(--line); text-align: right;
    vertical-align: top; font-size: inherit; color: inherit; white-space: nowrap; max-width: none; }
  th { font-weight: 600; color: var(--quiet); } th.words, td.words { text-align: left; }
  td.words { white-space: pre-wrap; } td.words:not(.good, .bad) { min-width: 4rem; }
  td:first-child { white-space: nowrap; overflow-wrap: normal; }
  tr:has(audio) td:first-child { white-space: normal; min-width: 8rem; }
  td.bad { color: var(--bad); } td.good { color: var(--good); }
  .pictures { display: flex; flex-wrap: wrap; gap: .75rem; margin: .35rem 0; } figure { margin: 0; max-width: 100%; }
  img { display: block; max-width: 100%; height: auto; margin: 0; background: transparent; }
  tr:has(audio) td { vertical-align: middle; }
  audio { display: block; width: 22rem; max-width: 100%; height: 2.5rem; margin: .35rem 0; }
  summary { cursor: pointer; color: var(--quiet); } details { margin: .25rem 0; }
  .time { display: block; overflow-x: auto; margin: .35rem 0; } .time svg { display: block; }
  .time rect { fill: var(--fill); } .time text { fill: currentColor; font: 12px system-ui, sans-serif; }
  .time .tick { fill: var(--quiet); font-size: 11px; } .time line { stroke: var(--line); }
  .bar { display: inline-block; width: 6rem; height: .5rem; background: var(--line); border-radius: .25rem;
    overflow: hidden; vertical-align: middle; } .bar i { display: block; height: 100%; background: var(--mark); }
  .bar.beyond i { background: var(--bad); }
  progress { width: 16rem; max-width: 60%; accent-color: var(--mark); vertical-align: middle; }
}
"""
