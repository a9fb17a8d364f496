// Earlier runs of a tab: their list is kept in this browser, the results on the server for a set time.
// `props.value` is {tab, hours, run}: `run` {key, title, at} is the run that has just ended, or the one that is shown.
// The address names the run that is shown, so that a link, a reload and Back show it again.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.history') || element;
const NAME = 'speech-workbench-runs';
const MOST = 60;
let shown = ''; // key of the run on the page

const make = (tag, attributes = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};
const all = () => {
  try { return JSON.parse(localStorage.getItem(NAME)) || []; } catch { return []; }
};
const store = (runs) => {
  try { localStorage.setItem(NAME, JSON.stringify(runs.slice(0, MOST))); } catch { /* a browser that keeps nothing */ }
};
const {tab} = props.value;
const youngEnough = (run) => Date.now() / 1000 - run.at < 3600 * props.value.hours;
const mine = () => all().filter((run) => run.tab === tab && youngEnough(run));
const addressOf = (key) => `#${tab}?run=${key}`;
const asked = () => {
  const [named, rest] = location.hash.slice(1).split('?');
  return named === tab ? new URLSearchParams(rest || '').get('run') || '' : '';
};

const copyLink = async (button, key) => {
  const link = `${location.origin}${location.pathname}${location.search}${addressOf(key)}`;
  try {
    await navigator.clipboard.writeText(link);
  } catch { // a page that came over plain http has no clipboard
    const area = make('textarea');
    area.value = link;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy link'; }, 1500);
};

const drawRun = (run) => {
  const link = make('a', {href: addressOf(run.key)}, run.title);
  if (run.key === shown) link.setAttribute('aria-current', 'true');
  const when = make('time', {datetime: new Date(1000 * run.at).toISOString()}, new Date(1000 * run.at).toLocaleString([], {dateStyle: 'medium', timeStyle: 'short'}));
  const copy = make('button', {type: 'button', class: 'quiet', 'aria-label': `Copy the link to ${run.title}`}, 'Copy link');
  copy.addEventListener('click', () => copyLink(copy, run.key));
  const drop = make('button', {type: 'button', class: 'quiet', 'aria-label': `Take ${run.title} off the list`, title: 'Take it off the list'}, '✕');
  drop.addEventListener('click', () => { store(all().filter((each) => each.key !== run.key)); draw(); });
  return make('li', {}, make('div', {}, link, when), copy, drop);
};

const draw = () => {
  const runs = mine();
  const open = holder.querySelector('details')?.open;
  if (!runs.length) { holder.replaceChildren(); return; }
  const details = make('details', {}, make('summary', {}, `Earlier runs (${runs.length})`), make('ul', {}, ...runs.map(drawRun)),
    make('p', {class: 'muted small'}, `The list is in this browser. The results stay on the server for ${props.value.period}; everybody with the link can see the run.`));
  details.open = Boolean(open);
  holder.replaceChildren(details);
};

// A run that has ended, or one of a link, that is on the page now.
const take = () => {
  const {run, gone} = props.value;
  if (gone) {
    store(all().filter((each) => each.key !== gone));
    if (asked() === gone) history.replaceState(history.state, '', `#${tab}`);
  }
  if (run && run.key !== shown) {
    const before = all();
    if (!before.some((each) => each.key === run.key)) store([{tab, ...run}, ...before]);
    shown = run.key;
    const here = location.hash.slice(1).split('?')[0];
    if (asked() !== run.key && (here === tab || here === '')) {
      history[asked() ? 'pushState' : 'replaceState'](history.state, '', addressOf(run.key));
    }
  }
  draw();
};

// Asks the server for the run that the address names.
const follow = () => {
  const key = asked();
  if (key && key !== shown) trigger('restore', {run: key});
};

(window.workbenchHistory ||= {})[tab] = follow; // for the page, when the rest of the tab has its values
addEventListener('popstate', follow);
addEventListener('storage', (event) => { if (event.key === NAME) draw(); });
watch('value', take);
draw();
