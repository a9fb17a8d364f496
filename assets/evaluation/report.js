// The table of all recordings in the report of an evaluation: sort, filter, search, look closer, export.
// The rows come in parts, each base64 of a zlib stream (workbench/evaluation/report/packed.py). The table is there with the
// numbers of all rows and the texts of the first ones; the other texts are read behind it, or as soon as they are needed.
// Text is only ever set as text content, never as HTML. Only the rows that can be seen are in the page.
'use strict';

const ROW = 32; // pixels
const TALLEST = 15e6; // pixels of a place that scrolls, in every browser
const MOST_CELLS = 4e6; // of an alignment that is computed here
const FORMULA = /^[=+\-@\t\r]/; // a spreadsheet would take such a cell for a formula
const embedded = location.hash.includes('embedded') && window.parent !== window;

const make = (tag, attributes = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...inside.filter((each) => each !== null));
  return made;
};
const unseen = (text) => make('span', {class: 'unseen'}, text);
const percent = (rate) => (Number.isFinite(rate) ? `${(100 * rate).toFixed(1)} %` : '–');
const tell = (message) => { if (embedded) window.parent.postMessage({...message, from: 'workbench-evaluation'}, '*'); };

// The tabs of the page around this one that take a recording.
const around = (/tabs=([a-z+]*)/.exec(location.hash)?.[1] || '').split('+');
// The theme: of the page around this one, else of the system, until the reader chooses.
const theme = /theme=(light|dark)/.exec(location.hash);
if (theme) document.documentElement.dataset.theme = theme[1];
if (embedded) {
  document.documentElement.classList.add('embedded');
  new ResizeObserver(() => tell({height: document.documentElement.scrollHeight})).observe(document.body);
  window.addEventListener('message', (event) => {
    if (event.source !== window.parent) return;
    if (['light', 'dark'].includes(event.data?.theme)) document.documentElement.dataset.theme = event.data.theme;
    const {id, address, error} = event.data?.sound || {};
    const place = document.querySelector('#row .player');
    if (!id || place?.dataset.id !== id) return; // another recording was opened since
    if (typeof address === 'string' && address.startsWith('data:audio/')) place.replaceChildren(make('audio', {controls: 'controls', src: address, 'aria-label': id}));
    else place.textContent = `The sound is not here: ${error}`;
  });
  for (const link of document.querySelectorAll('nav a')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();
      document.querySelector(link.getAttribute('href')).scrollIntoView({behavior: 'smooth', block: 'start'});
    });
  }
} else {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  document.querySelector('nav').append(make('button', {type: 'button', onclick: () => { document.documentElement.dataset.theme = dark() ? 'light' : 'dark'; }}, 'Light or dark'));
}

const inflated = (place) => { // a response of what a part holds
  const text = place.textContent;
  place.remove(); // the text is not needed twice
  let bytes;
  if (Uint8Array.fromBase64) bytes = Uint8Array.fromBase64(text);
  else {
    const letters = atob(text);
    bytes = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  }
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')));
};
const part = (kind) => document.querySelector(`script.${kind}`);
const idle = window.requestIdleCallback || ((work) => setTimeout(work, 20));

const failed = (error) => {
  const said = document.getElementById('rows-wait') || document.querySelector('.count');
  said.textContent = `The table cannot be shown: ${error.message}. It needs a browser of 2023 or later.`;
};

// The rows: `data` as the script uses it. `read(row)` reads the texts around a row, `readAll()` those of all rows.
const unpack = async () => {
  const data = await inflated(part('rows-head')).json();
  const {count, block, models} = data;
  const numbers = new Int32Array(await inflated(part('rows-numbers')).arrayBuffer());
  const column = (name) => { const at = data.numbers.indexOf(name) * count; return numbers.subarray(at, at + count); };
  for (const name of ['centiseconds', 'offsets']) data[name] = column(name);
  for (const [name, names] of Object.entries(data.groups)) data.groups[name] = {names, of: column(name)};
  models.forEach((model, place) => {
    model.counts = ['substitutions', 'deletions', 'insertions', 'hits'].map((name) => column(`${name} ${place}`));
    model.milliseconds = column(`milliseconds ${place}`);
    for (const name of ['text', 'units']) model[name] = new Array(count);
  });
  for (const name of ['ids', 'audio', 'reference', 'units']) data[name] = new Array(count);
  const places = Array.from(document.querySelectorAll('script.rows-texts'));
  const reading = new Array(places.length); // a promise for each block
  const copy = (from, into, first) => { for (let at = 0; at < from.length; at += 1) into[first + at] = from[at]; };
  const readBlock = async (number) => {
    const texts = await inflated(places[number]).json();
    const first = number * block;
    for (const name of ['audio', 'reference', 'units']) copy(texts[name], data[name], first);
    models.forEach((model, place) => { for (const name of ['text', 'units']) copy(texts.models[place][name], model[name], first); });
    copy(texts.ids, data.ids, first); // last: a row with an id has all its texts
  };
  data.read = (row) => (reading[Math.floor(row / block)] ??= readBlock(Math.floor(row / block)));
  data.whole = places.length < 2;
  data.readAll = async () => {
    for (let number = 0; number < places.length; number += 1) await data.read(number * block);
    data.whole = true;
  };
  data.readBehind = async () => {
    for (let number = 0; number < places.length; number += 1) {
      if (!reading[number]) await new Promise((resolve) => { idle(resolve, {timeout: 500}); });
      await data.read(number * block);
    }
    data.whole = true;
  };
  if (count) await data.read(0);
  return data;
};

const start = (data) => {
  const {count, models} = data;
  const groups = Object.entries(data.groups);

  // Values of a row.
  const saidBy = (model, row) => (model.text[row] === 0 ? null : model.text[row] === 1 ? data.reference[row] : model.text[row]);
  const plainly = (text) => text.toLowerCase().replace(/[.,;:!?"()-]/g, ' ').trim().replace(/\s+/g, ' ');
  const told = (units, text) => (units === 1 ? text : units === 2 ? plainly(text) : units);
  const unitsOf = (row) => told(data.units[row], data.reference[row]);
  const unitsBy = (model, row) => told(model.units[row], saidBy(model, row));
  const errorsBy = (model, row) => (model.counts[0][row] < 0 ? NaN : model.counts[0][row] + model.counts[1][row] + model.counts[2][row]);
  const lengthBy = (model, row) => model.counts[0][row] + model.counts[1][row] + model.counts[3][row];
  const rateBy = (model, row) => errorsBy(model, row) / Math.max(lengthBy(model, row), 1);
  const failedBy = (model, row) => model.failed[row];
  const seconds = (row) => (data.centiseconds[row] < 0 ? NaN : data.centiseconds[row] / 100);
  const groupOf = (found, row) => (found.of[row] < 0 ? '' : found.names[found.of[row]]);
  const keep = (value) => { // all values of a column, computed once
    let known = null;
    return () => (known ??= Float64Array.from({length: count}, (_, row) => value(row)));
  };
  const spread = keep((row) => {
    const rates = models.map((model) => rateBy(model, row)).filter(Number.isFinite);
    return rates.length > 1 ? Math.max(...rates) - Math.min(...rates) : NaN;
  });

  // The columns of the table. `keys` are numbers to sort by, `text` what is sorted as text.
  const columns = [
    {key: 'id', title: 'Recording', width: 'minmax(9rem, 16rem)', show: (row) => data.ids[row], text: (row) => data.ids[row], on: true, words: true},
    {key: 'seconds', title: 'Seconds', width: '5.5rem', show: (row) => (seconds(row) >= 0 ? seconds(row).toFixed(2) : '–'), keys: keep(seconds), on: true},
    ...models.map((model) => ({
      key: `rate:${model.key}`, title: model.name, hint: `${data.rate} of ${model.key}`, width: 'minmax(6rem, 10rem)', on: true, keys: keep((row) => rateBy(model, row)),
      show: (row) => (failedBy(model, row) !== undefined ? 'failed' : percent(rateBy(model, row))), heat: (row) => Math.min(rateBy(model, row), 1) || 0,
    })),
    ...(models.length > 1 ? [{key: 'spread', title: 'Apart', hint: 'The highest rate minus the lowest', width: '5.5rem', keys: spread, show: (row) => percent(spread()[row]), on: true}] : []),
    ...groups.map(([name, found]) => ({key: name, title: name[0].toUpperCase() + name.slice(1), width: 'minmax(5rem, 9rem)', keys: keep((row) => (found.of[row] < 0 ? NaN : found.of[row])), show: (row) => groupOf(found, row), words: true, on: name !== 'language' || found.names.length > 1})),
    {key: 'reference', title: 'Reference', width: '24rem', show: (row) => data.reference[row], text: (row) => data.reference[row], on: true, words: true},
    ...models.map((model) => ({key: `text:${model.key}`, title: `${model.name}: text`, width: '24rem', show: (row) => saidBy(model, row) ?? '', text: (row) => saidBy(model, row) ?? '', words: true})),
    ...models.map((model) => ({key: `time:${model.key}`, title: `${model.name}: ms`, hint: 'Milliseconds of computing', width: '7rem', keys: keep((row) => (model.milliseconds[row] < 0 ? NaN : model.milliseconds[row])), show: (row) => (model.milliseconds[row] < 0 ? '–' : String(model.milliseconds[row]))})),
  ];

  // Sorting. Each column is put in order once: its different values are sorted as numbers, natively, and the rows are
  // dealt out to them. Texts are packed into numbers; those that begin alike are compared in full.
  const orders = new Map(); // by column: {rows, ends: where the groups of equal values end, known: rows with a value}
  const packedKeys = (texts) => {
    let shared = texts.length ? texts[0].length : 0; // what all begin with does not tell them apart
    for (const text of texts) {
      let same = 0;
      while (same < shared && text.charCodeAt(same) === texts[0].charCodeAt(same)) same += 1;
      shared = same;
    }
    return Float64Array.from(texts, (text) => {
      let key = 0;
      for (let at = shared; at < shared + 7; at += 1) key = key * 128 + (at < text.length ? Math.min(text.charCodeAt(at) + 1, 127) : 0);
      return key;
    });
  };
  const ordered = (column) => {
    if (orders.has(column.key)) return orders.get(column.key);
    const texts = column.text ? Array.from({length: count}, (_, row) => column.text(row)) : null;
    const keys = texts ? packedKeys(texts) : column.keys();
    const values = Float64Array.from(new Set(keys)).sort(); // NaN comes last
    const places = new Map(Array.from(values, (value, place) => [value, place]));
    const group = Uint32Array.from(keys, (key) => places.get(key));
    const ends = new Uint32Array(values.length + 1);
    for (const each of group) ends[each + 1] += 1;
    for (let each = 0; each < values.length; each += 1) ends[each + 1] += ends[each];
    const next = ends.slice();
    const found = new Uint32Array(count);
    for (let row = 0; row < count; row += 1) found[next[group[row]]++] = row;
    if (texts) {
      for (let each = 0; each < values.length; each += 1) {
        if (ends[each + 1] - ends[each] > 1) found.subarray(ends[each], ends[each + 1]).sort((one, two) => (texts[one] < texts[two] ? -1 : texts[one] > texts[two] ? 1 : one - two));
      }
    }
    const known = values.length && Number.isNaN(values[values.length - 1]) ? ends[values.length - 1] : count;
    orders.set(column.key, {rows: found, ends, known});
    return orders.get(column.key);
  };
  let sorted = {key: null, down: false};
  let chosen = Uint32Array.from({length: count}, (_, row) => row); // the rows that pass the filters
  let order = chosen;
  const sort = () => {
    const column = columns.find((each) => each.key === sorted.key);
    order = chosen;
    if (!column) return;
    const {rows: all, ends, known} = ordered(column);
    const passes = new Uint8Array(count);
    for (const row of chosen) passes[row] = 1;
    order = new Uint32Array(chosen.length);
    let at = 0;
    const take = (from, to) => { for (let place = from; place < to; place += 1) if (passes[all[place]]) order[at++] = all[place]; };
    if (!sorted.down) take(0, count);
    else if (column.text) for (let place = count - 1; place >= 0; place -= 1) take(place, place + 1);
    else { // groups from the last to the first, each in its own order; what is not known comes last all the same
      for (let each = ends.length - 2; each >= 0; each -= 1) if (ends[each] < known) take(ends[each], ends[each + 1]);
      take(known, count);
    }
  };

  // Filters.
  const lower = new Map();
  const lowered = (name, value) => {
    if (!lower.has(name)) lower.set(name, Array.from({length: count}, (_, row) => value(row).toLowerCase()));
    return lower.get(name);
  };
  const filters = {search: '', show: 'all', least: NaN, most: NaN};
  const searched = () => [
    lowered('id', (row) => data.ids[row]),
    lowered('reference', (row) => data.reference[row]),
    ...models.map((model) => lowered(model.key, (row) => (typeof model.text[row] === 'string' ? model.text[row] : ''))),
  ];
  const shows = [
    ['all', 'all recordings', () => true],
    ['wrong', 'with errors', (row) => models.some((model) => errorsBy(model, row) > 0)],
    ['right', 'without errors', (row) => models.every((model) => errorsBy(model, row) === 0)],
    ...(models.length > 1 ? [['differ', 'where models differ', (row) => spread()[row] > 0]] : []),
    ['failed', 'failed', (row) => models.some((model) => failedBy(model, row) !== undefined)],
    ...(models.length > 1 ? models.map((model) => [`wrong:${model.key}`, `wrong in ${model.name}`, (row) => errorsBy(model, row) > 0]) : []),
  ];
  const filter = () => {
    const tests = [];
    const shown = shows.find(([key]) => key === filters.show);
    if (filters.show !== 'all') tests.push(shown[2]);
    for (const [name, found] of groups) {
      const wanted = filters[name];
      if (wanted !== undefined && wanted !== '') tests.push((row) => found.of[row] === Number(wanted));
    }
    if (Number.isFinite(filters.least)) tests.push((row) => seconds(row) >= filters.least);
    if (Number.isFinite(filters.most)) tests.push((row) => seconds(row) <= filters.most);
    for (const word of filters.search.toLowerCase().split(/\s+/).filter(Boolean)) {
      const texts = searched();
      tests.push((row) => texts.some((each) => each[row].includes(word)));
    }
    const kept = [];
    for (let row = 0; row < count; row += 1) if (tests.every((test) => test(row))) kept.push(row);
    chosen = Uint32Array.from(kept);
  };

  // The table. Rows are positioned by hand; beyond `TALLEST` the scroll bar stands for more rows than pixels.
  let shownColumns = [];
  let cursor = 0; // place in the order
  let opened = -1; // row
  const top = make('div', {class: 'line top', role: 'row'});
  const rows = make('div', {class: 'rows', role: 'rowgroup'});
  const body = make('div', {class: 'body', role: 'presentation'}, rows);
  const grid = make('div', {class: 'grid', role: 'grid', tabindex: 0, 'aria-label': 'All recordings; arrow keys move, Enter opens'}, top, body);
  const counted = make('p', {class: 'count', role: 'status'});
  const closer = make('div', {id: 'row', hidden: true});
  const scale = () => Math.max(1, (order.length * ROW) / TALLEST);
  const draw = () => {
    const height = order.length * ROW / scale();
    body.style.height = `${height}px`;
    const room = grid.clientHeight - top.offsetHeight;
    const first = Math.max(0, Math.min(Math.floor(grid.scrollTop * scale() / ROW), order.length - Math.floor(room / ROW)));
    const last = Math.min(order.length, first + Math.ceil(room / ROW) + 2);
    const begin = Math.max(0, first - 4);
    const lines = [], missing = [];
    for (let place = begin; place < last; place += 1) {
      const row = order[place];
      const here = data.ids[row] !== undefined;
      if (!here) missing.push(data.read(row));
      const line = make('div', {class: place === cursor ? 'line cursor' : 'line', role: 'row', id: `line-${place}`, 'aria-rowindex': place + 2, 'aria-selected': row === opened});
      line.dataset.place = place;
      for (const column of shownColumns) {
        const cell = make('div', {class: column.words ? 'cell' : 'cell number', role: 'gridcell'}, here || !column.text ? column.show(row) : '…');
        if (column.words) cell.dir = 'auto';
        const heat = column.heat ? column.heat(row) : 0;
        if (heat > 0) { cell.classList.add('shade'); cell.style.setProperty('--heat', heat.toFixed(2)); }
        line.append(cell);
      }
      lines.push(line);
    }
    rows.replaceChildren(...lines);
    const from = scale() > 1 ? grid.scrollTop - (first - begin) * ROW : begin * ROW;
    rows.style.transform = `translateY(${Math.max(0, from)}px)`;
    grid.setAttribute('aria-activedescendant', `line-${cursor}`);
    if (missing.length) Promise.all(missing).then(draw);
  };
  let waiting = false;
  grid.addEventListener('scroll', () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  });
  const drawHead = () => {
    shownColumns = columns.filter((each) => each.on);
    // On a phone the first column, which stays, leaves room for others.
    const narrow = matchMedia('(max-width: 700px)').matches;
    grid.style.setProperty('--tracks', shownColumns.map((each, place) => (narrow && !place ? 'minmax(6rem, 8.5rem)' : each.width)).join(' '));
    grid.setAttribute('aria-colcount', shownColumns.length);
    top.replaceChildren(...shownColumns.map((column) => {
      const how = sorted.key === column.key ? (sorted.down ? 'descending' : 'ascending') : 'none';
      const sign = how === 'none' ? '' : sorted.down ? ' ↓' : ' ↑';
      const button = make('button', {type: 'button', title: column.hint, tabindex: 0, onclick: () => sortBy(column)}, column.title + sign);
      return make('div', {class: column.words ? 'cell head' : 'cell head number', role: 'columnheader', 'aria-sort': how}, button);
    }));
  };
  const drawCount = () => {
    const parts = models.map((model) => {
      let errors = 0, units = 0;
      for (const row of chosen) if (model.counts[0][row] >= 0) { errors += errorsBy(model, row); units += lengthBy(model, row); }
      return `${model.name} ${units ? percent(errors / units) : '–'}`;
    });
    const of = chosen.length === count ? `${count.toLocaleString('en')} recordings` : `${chosen.length.toLocaleString('en')} of ${count.toLocaleString('en')} recordings`;
    counted.textContent = chosen.length ? `${of} · ${data.rate}: ${parts.join(', ')}` : `${of}: nothing fits these filters`;
    grid.setAttribute('aria-rowcount', order.length + 1);
  };
  const wholeTexts = async () => {
    if (data.whole) return;
    counted.textContent = 'Reading the texts of all recordings';
    await data.readAll();
    drawCount();
  };
  const renew = () => { grid.scrollTop = 0; cursor = 0; drawHead(); drawCount(); draw(); };
  const sortBy = async (column) => {
    if (column.text && !data.whole) await wholeTexts();
    const begun = performance.now();
    // Numbers first fall, as the worst are what one looks for; words first rise.
    const first = !column.words;
    sorted = sorted.key !== column.key ? {key: column.key, down: first} : sorted.down === first ? {key: column.key, down: !first} : {key: null, down: false};
    sort();
    renew();
    grid.dataset.sorted = (performance.now() - begun).toFixed(1); // milliseconds, for measurements
    top.querySelector(`:scope > :nth-child(${shownColumns.indexOf(column) + 1}) button`)?.focus();
  };
  const refilter = async () => {
    if (filters.search.trim()) await wholeTexts();
    filter();
    sort();
    renew();
  };
  const reveal = () => {
    const above = cursor * ROW / scale();
    const room = grid.clientHeight - top.offsetHeight;
    if (above < grid.scrollTop) grid.scrollTop = above;
    else if (above + ROW > grid.scrollTop + room) grid.scrollTop = above + ROW - room;
    draw();
  };
  const moves = {ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity};
  grid.addEventListener('keydown', (event) => {
    if (event.target !== grid || !order.length) return;
    if (event.key in moves) {
      cursor = Math.max(0, Math.min(order.length - 1, cursor + moves[event.key]));
      reveal();
    } else if (event.key === 'Enter' || event.key === ' ') open(order[cursor], true);
    else return;
    event.preventDefault();
  });
  rows.addEventListener('click', (event) => {
    const line = event.target.closest('.line');
    if (!line) return;
    cursor = Number(line.dataset.place);
    open(order[cursor], false);
  });

  // A row closely.
  const aligned = (wanted, heard, separator) => {
    const [one, two] = [wanted, heard].map((text) => (text ? text.split(separator).filter(Boolean) : []));
    const width = two.length + 1;
    if ((one.length + 1) * width > MOST_CELLS) return null;
    const cost = new Uint32Array((one.length + 1) * width);
    for (let left = 0; left <= one.length; left += 1) {
      for (let right = 0; right <= two.length; right += 1) {
        const at = left * width + right;
        if (!left || !right) cost[at] = left + right;
        else cost[at] = Math.min(cost[at - width - 1] + (one[left - 1] === two[right - 1] ? 0 : 1), cost[at - width] + 1, cost[at - 1] + 1);
      }
    }
    const pieces = [];
    let [left, right] = [one.length, two.length];
    while (left || right) {
      const at = left * width + right;
      const same = left && right && one[left - 1] === two[right - 1];
      if (left && right && cost[at] === cost[at - width - 1] + (same ? 0 : 1)) { left -= 1; right -= 1; pieces.push([one[left], two[right]]); }
      else if (left && cost[at] === cost[at - width] + 1) { left -= 1; pieces.push([one[left], null]); }
      else { right -= 1; pieces.push([null, two[right]]); }
    }
    return pieces.reverse();
  };
  const marked = (wanted, heard, kind) => {
    const pieces = aligned(wanted, heard, kind === 'W' ? /\s+/ : '\u001f');
    const line = make('dd', {dir: 'auto'});
    if (pieces === null) { line.append((heard || '').replaceAll('\u001f', '')); return line; }
    if (!pieces.length) line.append(make('span', {class: 'quiet'}, 'no words'));
    pieces.forEach(([left, right], place) => {
      if (place && kind === 'W') line.append(' ');
      if (left === right) line.append(right);
      else if (right === null) line.append(make('del', {}, unseen('missing: '), left));
      else if (left === null) line.append(make('ins', {}, unseen('added: '), right));
      else line.append(make('span', {class: 'wrong'}, make('span', {}, right), make('small', {}, unseen(' instead of '), left)));
    });
    return line;
  };
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const doors = (row) => {
    if (embedded) {
      return ['Transcribe', 'Parity', 'Visualise'].filter((title) => around.includes(title.toLowerCase())).map((title) => make('button', {type: 'button', title: `Open this recording in ${title}`, onclick: () => tell({open: title.toLowerCase(), id: data.ids[row]})}, `Open in ${title}`));
    }
    const [card, runtime] = models[0].key.split('|');
    const command = `workbench transcribe ${quoted(data.audio[row])} --model ${quoted(card)}${runtime ? ` --runtime ${quoted(runtime)}` : ''}`;
    return [make('button', {
      type: 'button', title: command,
      onclick: async (event) => {
        try { await navigator.clipboard.writeText(command); event.target.textContent = 'Copied'; } catch { event.target.replaceWith(make('code', {}, command)); }
      },
    }, 'Copy command')];
  };
  const open = async (row, focus) => {
    opened = row;
    if (data.ids[row] === undefined) {
      await data.read(row);
      if (opened !== row) return; // another was opened since
    }
    const facts = [...groups.map(([, found]) => groupOf(found, row)), seconds(row) >= 0 ? `${seconds(row).toFixed(2)} s` : '', data.offsets[row] ? `${data.audio[row]}, from ${data.offsets[row] / 1000} s` : data.audio[row]];
    const step = (by, title) => make('button', {type: 'button', onclick: () => { cursor = Math.max(0, Math.min(order.length - 1, cursor + by)); reveal(); open(order[cursor], true); }}, title);
    const head = make('h3', {tabindex: -1}, data.ids[row], make('span', {class: 'quiet'}, facts.filter(Boolean).join(' · ')), make('span', {class: 'steps'}, step(-1, '← Previous'), step(1, 'Next →')));
    const texts = make('dl', {class: 'texts'}, make('div', {}, make('dt', {}, 'Reference'), make('dd', {dir: 'auto'}, data.reference[row] || '(nothing is said)')));
    for (const model of models) {
      const said = saidBy(model, row);
      const rate = `${model.name} `;
      const name = make('dt', {}, rate, make('b', {}, percent(rateBy(model, row))));
      if (failedBy(model, row) !== undefined) texts.append(make('div', {}, name, make('dd', {class: 'fault'}, `Failed: ${failedBy(model, row)}`)));
      else if (said === null) texts.append(make('div', {}, name, make('dd', {class: 'quiet'}, 'not done')));
      else {
        texts.append(make('div', {}, name, marked(unitsOf(row), unitsBy(model, row), data.kinds[row])));
        if (model.units[row] !== 1) texts.append(make('div', {}, make('dt', {}, 'as written'), make('dd', {class: 'raw', dir: 'auto'}, said)));
      }
    }
    const sound = document.querySelector(`.recording[data-row="${row}"] audio`);
    const player = make('div', {class: 'player quiet', 'data-id': data.ids[row]});
    if (sound) player.append(make('audio', {controls: 'controls', src: sound.src, 'aria-label': data.ids[row]}));
    else player.append(embedded ? 'Fetching the sound' : 'This file has the sound of the worst and the most different recordings only.');
    closer.replaceChildren(head, player, texts, make('div', {class: 'doors'}, ...doors(row)));
    closer.hidden = false;
    draw();
    if (!sound) tell({look: data.ids[row]});
    closer.scrollIntoView({block: 'nearest', behavior: 'smooth'});
    if (focus) head.focus({preventScroll: true});
  };
  closer.addEventListener('keydown', (event) => { if (event.key === 'Escape') grid.focus(); });

  // Export.
  const plain = (row) => ({
    id: data.ids[row], audio: data.audio[row], offset: data.offsets[row] / 1000, seconds: seconds(row) >= 0 ? seconds(row) : null,
    ...Object.fromEntries(groups.map(([name, found]) => [name, groupOf(found, row) || null])), reference: data.reference[row],
    models: models.map((model) => ({
      model: model.key, text: saidBy(model, row), error: failedBy(model, row) ?? null,
      ...Object.fromEntries(['substitutions', 'deletions', 'insertions', 'hits'].map((name, at) => [name, model.counts[at][row] < 0 ? null : model.counts[at][row]])),
      rate: Number.isFinite(rateBy(model, row)) ? rateBy(model, row) : null,
    })),
  });
  const save = (name, type, parts) => {
    const address = URL.createObjectURL(new Blob(parts, {type}));
    const link = make('a', {href: address, download: name});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };
  const cell = (value) => {
    let text = value === null || value === undefined ? '' : String(value);
    if (typeof value === 'string' && FORMULA.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const saveCsv = async () => {
    await wholeTexts();
    const parts = [];
    for (const row of order) {
      const {models: each, ...own} = plain(row);
      for (const one of each) {
        const line = {...own, ...one};
        if (!parts.length) parts.push(`${Object.keys(line).map(cell).join(',')}\r\n`);
        parts.push(`${Object.values(line).map(cell).join(',')}\r\n`);
      }
    }
    save('evaluation.csv', 'text/csv', parts);
  };
  const saveJson = async () => {
    await wholeTexts();
    save('evaluation.json', 'application/json', [JSON.stringify(Array.from(order, plain))]);
  };

  // The tools above the table.
  let pause = 0;
  const search = make('input', {type: 'search', placeholder: 'words, or part of a name', oninput: (event) => {
    clearTimeout(pause);
    const {value} = event.target;
    pause = setTimeout(() => { filters.search = value; refilter(); }, 120);
  }});
  const choice = (name, options) => make('select', {name, onchange: (event) => { filters[name] = event.target.value; refilter(); }}, ...options.map(([value, title]) => make('option', {value}, title)));
  const bound = (name) => make('input', {type: 'number', min: 0, step: 'any', oninput: (event) => { filters[name] = event.target.value === '' ? NaN : Number(event.target.value); refilter(); }});
  const pick = make('details', {}, make('summary', {}, 'Columns'), make('div', {}, ...columns.slice(1).map((column) => {
    const box = make('input', {type: 'checkbox', checked: Boolean(column.on), onchange: () => { column.on = box.checked; drawHead(); draw(); }});
    return make('label', {}, box, column.title);
  })));
  const tools = make('div', {class: 'tools', role: 'search'},
    make('label', {}, 'Search', search),
    make('label', {class: 'short'}, 'Show', choice('show', shows.map(([key, title]) => [key, title]))),
    ...groups.map(([name, found]) => make('label', {class: 'short'}, name[0].toUpperCase() + name.slice(1), choice(name, [['', 'any'], ...found.names.map((each, at) => [at, each])]))),
    make('label', {class: 'short'}, 'Seconds from', bound('least')),
    make('label', {class: 'short'}, 'to', bound('most')),
    pick,
    make('button', {type: 'button', onclick: saveCsv, title: 'The rows below, in their order'}, 'Save CSV'),
    make('button', {type: 'button', onclick: saveJson, title: 'The rows below, in their order'}, 'Save JSON'));
  document.addEventListener('click', (event) => { if (!pick.contains(event.target)) pick.open = false; });
  document.getElementById('rows-table').append(tools, counted, grid, closer);
  document.getElementById('rows-wait').remove();
  drawHead();
  drawCount();
  draw();
  new ResizeObserver(draw).observe(grid);
  document.documentElement.dataset.ready = performance.now().toFixed(0); // milliseconds since the page was asked for
  for (const column of columns) if (column.on && column.keys) idle(() => ordered(column));
  data.readBehind().then(() => {
    for (const place of document.querySelectorAll('.recording .doors')) place.append(...doors(Number(place.dataset.row)));
    document.documentElement.dataset.whole = performance.now().toFixed(0);
    for (const column of columns) if (column.on && column.text) idle(() => ordered(column));
  }).catch(failed);
};

unpack().then(start).catch(failed);
