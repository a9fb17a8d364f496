// Earlier runs of a tab: the browser stores their list, the server stores their results for some hours.
// `props.value` is {tab, hours, period, run, gone}. `run` {key, title, at} is the run that has just ended or that is
// shown; `gone` is the key of a run that the server has no longer.
// The address names the shown run, so that a link, a reload and Back show it again.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.history') || element;
const NAME = 'speech-workbench-runs';
const MAX_RUNS = 60;
let shownKey = ''; // key of the run on the page

const make = (tag, attributes = {}, ...content) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...content);
  return node;
};
const allRuns = () => {
  try { return JSON.parse(localStorage.getItem(NAME)) || []; } catch { return []; }
};
const saveRuns = (runs) => {
  try { localStorage.setItem(NAME, JSON.stringify(runs.slice(0, MAX_RUNS))); } catch { /* a browser that keeps nothing */ }
};
const {tab} = props.value;
const isAvailable = (run) => Date.now() / 1000 - run.at < 3600 * props.value.hours;
const tabRuns = () => allRuns().filter((run) => run.tab === tab && isAvailable(run));
const addressOf = (key) => `#${tab}?run=${key}`;
const keyInAddress = () => {
  const [tabName, query] = location.hash.slice(1).split('?');
  return tabName === tab ? new URLSearchParams(query || '').get('run') || '' : '';
};

const copyLink = async (button, key) => {
  const link = `${location.origin}${location.pathname}${location.search}${addressOf(key)}`;
  try {
    await navigator.clipboard.writeText(link);
  } catch { // a page over http, not https, has no clipboard
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
  if (run.key === shownKey) link.setAttribute('aria-current', 'true');
  const timeElement = make('time', {datetime: new Date(1000 * run.at).toISOString()}, new Date(1000 * run.at).toLocaleString([], {dateStyle: 'medium', timeStyle: 'short'}));
  const copyButton = make('button', {type: 'button', class: 'quiet', 'aria-label': `Copy the link to ${run.title}`}, 'Copy link');
  copyButton.addEventListener('click', () => copyLink(copyButton, run.key));
  const removeButton = make('button', {type: 'button', class: 'quiet', 'aria-label': `Take ${run.title} off the list`, title: 'Take it off the list'}, '✕');
  removeButton.addEventListener('click', () => { saveRuns(allRuns().filter((each) => each.key !== run.key)); draw(); });
  return make('li', {}, make('div', {}, link, timeElement), copyButton, removeButton);
};

const draw = () => {
  const runs = tabRuns();
  const isOpen = holder.querySelector('details')?.open;
  if (!runs.length) { holder.replaceChildren(); return; }
  const details = make('details', {}, make('summary', {}, `Earlier runs (${runs.length})`), make('ul', {}, ...runs.map(drawRun)),
    make('p', {class: 'muted small'}, `The list is in this browser. The results stay on the server for ${props.value.period}; everybody with the link can see the run.`));
  details.open = Boolean(isOpen);
  holder.replaceChildren(details);
};

// On a phone the results of a link are far below the inputs; this list is at their top.
const showResults = () => {
  const {top} = holder.getBoundingClientRect();
  if (top > innerHeight / 2) holder.scrollIntoView({block: 'start'});
};

// Adds the run that has just ended, or that a link opened, to the list and to the address.
const showNewRun = () => {
  const {run: newRun, gone: removedKey} = props.value;
  if (removedKey) {
    saveRuns(allRuns().filter((run) => run.key !== removedKey));
    if (keyInAddress() === removedKey) history.replaceState(history.state, '', `#${tab}`);
  }
  if (newRun && newRun.key !== shownKey) {
    const runs = allRuns();
    if (!runs.some((run) => run.key === newRun.key)) saveRuns([{tab, ...newRun}, ...runs]);
    shownKey = newRun.key;
    const isRestored = keyInAddress() === newRun.key;
    if (isRestored) setTimeout(showResults);
    const currentTab = location.hash.slice(1).split('?')[0];
    if (!isRestored && (currentTab === tab || currentTab === '')) {
      history[keyInAddress() ? 'pushState' : 'replaceState'](history.state, '', addressOf(newRun.key));
    }
  }
  draw();
};

// Asks the server for the run that the address names.
const restoreRun = () => {
  const key = keyInAddress();
  if (key && key !== shownKey) trigger('restore', {run: key});
};

(window.workbenchHistory ||= {})[tab] = restoreRun; // the page calls it once the tab has its values
addEventListener('popstate', restoreRun);
addEventListener('storage', (event) => { if (event.key === NAME) draw(); });
watch('value', showNewRun);
draw();
