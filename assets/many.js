// The table of many recordings: the browser sorts, searches and filters it. The server sends it again
// during a run; the visitor's choices here stay.
const tools = element.querySelector('.many-tools');
const [search, only, count] = [tools.querySelector('input'), tools.querySelector('select'), tools.querySelector('.count')];
const results = document.querySelector('#results');
const opened = new Set();
let order = null; // [column, 1 or -1]

const value = (body, column) => {
  const text = body.dataset[column];
  return column === 'name' ? text.toLowerCase() : text === '' ? NaN : Number(text);
};
const compare = ([column, way]) => (one, other) => {
  const [a, b] = [value(one, column), value(other, column)];
  if (column === 'name') return way * a.localeCompare(b, undefined, {numeric: true});
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // unknown values come last
  return way * (a - b);
};
const matches = (body) => {
  const {name, text, rate, disagreement, failed} = body.dataset;
  const filters = {wrong: Number(rate) > 0, disagreement: Number(disagreement) > 0, failed: Number(failed) > 0};
  const query = search.value.trim().toLowerCase();
  return (!only.value || filters[only.value]) && (!query || `${name} ${text} ${body.querySelector('.inside').textContent}`.toLowerCase().includes(query));
};

const apply = () => {
  observer.disconnect();
  const table = results.querySelector('.overview');
  tools.hidden = !table;
  if (table) {
    const bodies = [...table.tBodies];
    const sorted = order ? [...bodies].sort(compare(order)) : [...bodies].sort((one, other) => one.dataset.place - other.dataset.place);
    if (sorted.some((each, at) => each !== bodies[at])) table.append(...sorted);
    for (const body of bodies) {
      body.hidden = !matches(body);
      const open = opened.has(body.dataset.place);
      body.querySelector('.inside').hidden = !open;
      body.querySelector('.opener').setAttribute('aria-expanded', open);
    }
    for (const button of table.querySelectorAll('[data-sort]')) {
      const [column, way] = order || [];
      const state = button.dataset.sort === column ? (way > 0 ? 'ascending' : 'descending') : 'none';
      button.closest('th').setAttribute('aria-sort', state);
    }
    const visible = bodies.filter((body) => !body.hidden).length;
    const summary = visible === bodies.length ? `${visible} recordings` : `${visible} of ${bodies.length} recordings`;
    if (count.textContent !== summary) count.textContent = summary;
  } else if (opened.size) opened.clear();
  observer.observe(results, {childList: true, subtree: true});
};
const observer = new MutationObserver(apply);

results.addEventListener('click', (event) => {
  const sort = event.target.closest('[data-sort]');
  const opener = event.target.closest('.opener');
  if (sort) {
    const column = sort.dataset.sort;
    const first = column === 'name' || column === 'sure' ? 1 : -1; // the worst and the longest first
    order = order && order[0] === column ? (order[1] === first ? [column, -first] : null) : [column, first];
  } else if (opener) {
    const {place} = opener.closest('tbody').dataset;
    if (!opened.delete(place)) opened.add(place);
  } else return;
  apply();
});
search.addEventListener('input', apply);
only.addEventListener('change', apply);
tools.addEventListener('click', (event) => {
  const save = event.target.closest('[data-save]');
  if (save) trigger('save', {form: save.dataset.save});
});
apply();
