// The table of all recordings in the report of an evaluation: it sorts, filters, searches, shows one row and exports.
// The rows come in parts, each base64 of a zlib stream (workbench/evaluation/report/packed.py). The table appears with
// the numbers of all rows and the first block of texts; the script reads the other texts while the browser is idle, or
// sooner where somebody needs them.
// Text is only ever set as text content, never as HTML. The page has elements for the visible rows only.
'use strict';

const ROW = 32; // pixels
const MAX_HEIGHT = 15e6; // pixels; every browser can scroll an element of this height
const MAX_CELLS = 4e6; // of the table of an alignment; a larger alignment is not computed
const FORMULA = /^[=+\-@\t\n\r]/; // a spreadsheet would take such a cell for a formula
const isEmbedded = location.hash.includes('embedded') && window.parent !== window;

const make = (tag, attributes = {}, ...content) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...content.filter((each) => each !== null));
  return element;
};
const hiddenText = (text) => make('span', {class: 'unseen', dir: 'ltr'}, text); // the line's own direction is that of its other text
const percent = (rate) => (Number.isFinite(rate) ? `${(100 * rate).toFixed(1)} %` : '–');
const scrollBehavior = () => (matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'); // in one step with less motion
const postToParent = (message) => { if (isEmbedded) window.parent.postMessage({...message, from: 'workbench-evaluation'}, '*'); };

// The tabs of the surrounding page that can open a recording.
const parentTabs = (/tabs=([a-z+]*)/.exec(location.hash)?.[1] || '').split('+');
// The theme of the surrounding page, else that of the system, until the reader chooses one.
const theme = /theme=(light|dark)/.exec(location.hash);
if (theme) document.documentElement.dataset.theme = theme[1];
if (isEmbedded) {
  document.documentElement.classList.add('embedded');
  new ResizeObserver(() => postToParent({height: document.documentElement.scrollHeight})).observe(document.body);
  window.addEventListener('message', (event) => {
    if (event.source !== window.parent) return;
    if (['light', 'dark'].includes(event.data?.theme)) document.documentElement.dataset.theme = event.data.theme;
    const {id, address, error} = event.data?.sound || {};
    const player = document.querySelector('#row .player');
    if (!id || player?.dataset.id !== id) return; // the reader has opened another recording meanwhile
    if (typeof address === 'string' && address.startsWith('data:audio/')) player.replaceChildren(make('audio', {controls: 'controls', src: address, 'aria-label': id}));
    else player.textContent = `The sound is not here: ${error}`;
  });
  for (const link of document.querySelectorAll('nav a')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();
      document.querySelector(link.getAttribute('href')).scrollIntoView({behavior: scrollBehavior(), block: 'start'});
    });
  }
} else {
  const isDark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  document.querySelector('nav').append(make('button', {type: 'button', onclick: () => { document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'; }}, 'Light or dark'));
}

const inflate = (script) => { // returns a Response with the inflated bytes of a part
  const text = script.textContent;
  script.remove(); // the page needs its text once only
  let bytes;
  if (Uint8Array.fromBase64) bytes = Uint8Array.fromBase64(text);
  else {
    const characters = atob(text);
    bytes = new Uint8Array(characters.length);
    for (let index = 0; index < characters.length; index += 1) bytes[index] = characters.charCodeAt(index);
  }
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')));
};
const findScript = (cssClass) => document.querySelector(`script.${cssClass}`);
const whenIdle = window.requestIdleCallback || ((callback) => setTimeout(callback, 20));

const showError = (error) => {
  const message = document.getElementById('rows-wait') || document.querySelector('.count');
  message.textContent = `The table cannot be shown: ${error.message}. It needs a browser of June 2024 or later.`;
};

// Returns `data`: the columns of all rows. `data.read(row)` reads the block of texts that contains a row, and
// `data.readAll()` reads all blocks.
const unpack = async () => {
  const data = await inflate(findScript('rows-head')).json();
  const {count, block: blockSize, models} = data;
  const numbers = new Int32Array(await inflate(findScript('rows-numbers')).arrayBuffer());
  const column = (name) => { const begin = data.numbers.indexOf(name) * count; return numbers.subarray(begin, begin + count); };
  for (const name of ['centiseconds', 'offsets']) data[name] = column(name);
  for (const [name, names] of Object.entries(data.groups)) data.groups[name] = {names, of: column(name)};
  models.forEach((model, index) => {
    model.counts = ['substitutions', 'deletions', 'insertions', 'hits'].map((name) => column(`${name} ${index}`));
    model.milliseconds = column(`milliseconds ${index}`);
    for (const name of ['text', 'units']) model[name] = new Array(count);
  });
  for (const name of ['ids', 'audio', 'reference', 'units']) data[name] = new Array(count);
  const scripts = Array.from(document.querySelectorAll('script.rows-texts'));
  const blockReads = new Array(scripts.length); // the promise of each block that is being read
  const copy = (source, target, offset) => { for (let index = 0; index < source.length; index += 1) target[offset + index] = source[index]; };
  const readBlock = async (block) => {
    const texts = await inflate(scripts[block]).json();
    const firstRow = block * blockSize;
    for (const name of ['audio', 'reference', 'units']) copy(texts[name], data[name], firstRow);
    models.forEach((model, index) => { for (const name of ['text', 'units']) copy(texts.models[index][name], model[name], firstRow); });
    copy(texts.ids, data.ids, firstRow); // ids come last: a row that has an id has all its texts
  };
  data.read = (row) => (blockReads[Math.floor(row / blockSize)] ??= readBlock(Math.floor(row / blockSize)));
  data.hasAllTexts = scripts.length < 2;
  data.readAll = async () => {
    for (let block = 0; block < scripts.length; block += 1) await data.read(block * blockSize);
    data.hasAllTexts = true;
  };
  data.readInBackground = async () => {
    for (let block = 0; block < scripts.length; block += 1) {
      if (!blockReads[block]) await new Promise((resolve) => { whenIdle(resolve, {timeout: 500}); });
      await data.read(block * blockSize);
    }
    data.hasAllTexts = true;
  };
  if (count) await data.read(0);
  return data;
};

const start = (data) => {
  const {count, models} = data;
  const groups = Object.entries(data.groups);

  // Values of a row.
  const hypothesisOf = (model, row) => (model.text[row] === 0 ? null : model.text[row] === 1 ? data.reference[row] : model.text[row]);
  const plainText = (text) => text.toLowerCase().replace(/[.,;:!?"()-]/g, ' ').trim().replace(/\s+/g, ' ');
  const decodeUnits = (code, text) => (code === 1 ? text : code === 2 ? plainText(text) : code);
  const referenceUnits = (row) => decodeUnits(data.units[row], data.reference[row]);
  const hypothesisUnits = (model, row) => decodeUnits(model.units[row], hypothesisOf(model, row));
  const errorCount = (model, row) => (model.counts[0][row] < 0 ? NaN : model.counts[0][row] + model.counts[1][row] + model.counts[2][row]);
  const referenceLength = (model, row) => model.counts[0][row] + model.counts[1][row] + model.counts[3][row];
  const errorRate = (model, row) => errorCount(model, row) / Math.max(referenceLength(model, row), 1);
  const failureReason = (model, row) => model.failed[row];
  const seconds = (row) => (data.centiseconds[row] < 0 ? NaN : data.centiseconds[row] / 100);
  const groupName = (group, row) => (group.of[row] < 0 ? '' : group.names[group.of[row]]);
  const memoise = (compute) => { // returns a function that computes the values of all rows once
    let values = null;
    return () => (values ??= Float64Array.from({length: count}, (_, row) => compute(row)));
  };
  const spread = memoise((row) => {
    const rates = models.map((model) => errorRate(model, row)).filter(Number.isFinite);
    return rates.length > 1 ? Math.max(...rates) - Math.min(...rates) : NaN;
  });

  // The columns of the table. `sortKeys` returns the numbers to sort by, `text` the text to sort by.
  const columns = [
    {key: 'id', title: 'Recording', width: 'minmax(9rem, 16rem)', show: (row) => data.ids[row], text: (row) => data.ids[row], isVisible: true, isText: true},
    {key: 'seconds', title: 'Seconds', width: '5.5rem', show: (row) => (seconds(row) >= 0 ? seconds(row).toFixed(2) : '–'), sortKeys: memoise(seconds), isVisible: true},
    ...models.map((model) => ({
      key: `rate:${model.key}`, title: model.name, hint: `${data.rate} of ${model.key}`, width: 'minmax(6rem, 10rem)', isVisible: true, sortKeys: memoise((row) => errorRate(model, row)),
      show: (row) => (failureReason(model, row) !== undefined ? 'failed' : percent(errorRate(model, row))), heat: (row) => Math.min(errorRate(model, row), 1) || 0,
    })),
    ...(models.length > 1 ? [{key: 'spread', title: 'Apart', hint: 'The highest rate minus the lowest', width: '5.5rem', sortKeys: spread, show: (row) => percent(spread()[row]), isVisible: true}] : []),
    ...groups.map(([name, group]) => ({key: name, title: name[0].toUpperCase() + name.slice(1), width: 'minmax(5rem, 9rem)', sortKeys: memoise((row) => (group.of[row] < 0 ? NaN : group.of[row])), show: (row) => groupName(group, row), isText: true, isVisible: name !== 'language' || group.names.length > 1})),
    {key: 'reference', title: 'Reference', width: '24rem', show: (row) => data.reference[row], text: (row) => data.reference[row], isVisible: true, isText: true},
    ...models.map((model) => ({key: `text:${model.key}`, title: `${model.name}: text`, width: '24rem', show: (row) => hypothesisOf(model, row) ?? '', text: (row) => hypothesisOf(model, row) ?? '', isText: true})),
    ...models.map((model) => ({key: `time:${model.key}`, title: `${model.name}: ms`, hint: 'Milliseconds of computing', width: '7rem', sortKeys: memoise((row) => (model.milliseconds[row] < 0 ? NaN : model.milliseconds[row])), show: (row) => (model.milliseconds[row] < 0 ? '–' : String(model.milliseconds[row]))})),
  ];

  // Sorting. Each column is sorted once: the browser sorts its different values as numbers, then each row goes to the
  // group of its value. The first characters of a text make its number; texts of one group are compared in full.
  const orders = new Map(); // by column: {rows, ends: where the groups of equal values end, knownCount: rows with a value}
  const packedKeys = (texts) => {
    let prefixLength = texts.length ? texts[0].length : 0; // the common prefix of all texts does not order them
    for (const text of texts) {
      let matchLength = 0;
      while (matchLength < prefixLength && text.charCodeAt(matchLength) === texts[0].charCodeAt(matchLength)) matchLength += 1;
      prefixLength = matchLength;
    }
    return Float64Array.from(texts, (text) => {
      let key = 0;
      for (let index = prefixLength; index < prefixLength + 7; index += 1) key = key * 128 + (index < text.length ? Math.min(text.charCodeAt(index) + 1, 127) : 0);
      return key;
    });
  };
  const sortRows = (column) => {
    if (orders.has(column.key)) return orders.get(column.key);
    const texts = column.text ? Array.from({length: count}, (_, row) => column.text(row)) : null;
    const keys = texts ? packedKeys(texts) : column.sortKeys();
    const values = Float64Array.from(new Set(keys)).sort(); // NaN comes last
    const groupOfValue = new Map(Array.from(values, (value, group) => [value, group]));
    const groupOfRow = Uint32Array.from(keys, (key) => groupOfValue.get(key));
    const ends = new Uint32Array(values.length + 1);
    for (const group of groupOfRow) ends[group + 1] += 1;
    for (let group = 0; group < values.length; group += 1) ends[group + 1] += ends[group];
    const nextPositions = ends.slice();
    const sortedRows = new Uint32Array(count);
    for (let row = 0; row < count; row += 1) sortedRows[nextPositions[groupOfRow[row]]++] = row;
    if (texts) {
      for (let group = 0; group < values.length; group += 1) {
        if (ends[group + 1] - ends[group] > 1) sortedRows.subarray(ends[group], ends[group + 1]).sort((first, second) => (texts[first] < texts[second] ? -1 : texts[first] > texts[second] ? 1 : first - second));
      }
    }
    const knownCount = values.length && Number.isNaN(values[values.length - 1]) ? ends[values.length - 1] : count;
    orders.set(column.key, {rows: sortedRows, ends, knownCount});
    return orders.get(column.key);
  };
  let sorting = {key: null, isDescending: false};
  let filteredRows = Uint32Array.from({length: count}, (_, row) => row); // the rows that pass the filters
  let order = filteredRows;
  const sort = () => {
    const column = columns.find((each) => each.key === sorting.key);
    order = filteredRows;
    if (!column) return;
    const {rows: sortedRows, ends, knownCount} = sortRows(column);
    const isIncluded = new Uint8Array(count);
    for (const row of filteredRows) isIncluded[row] = 1;
    order = new Uint32Array(filteredRows.length);
    let position = 0;
    const appendIncluded = (begin, end) => { for (let index = begin; index < end; index += 1) if (isIncluded[sortedRows[index]]) order[position++] = sortedRows[index]; };
    if (!sorting.isDescending) appendIncluded(0, count);
    else if (column.text) for (let index = count - 1; index >= 0; index -= 1) appendIncluded(index, index + 1);
    else { // groups from the last to the first, each in its own order; rows without a value come last here too
      for (let group = ends.length - 2; group >= 0; group -= 1) if (ends[group] < knownCount) appendIncluded(ends[group], ends[group + 1]);
      appendIncluded(knownCount, count);
    }
  };

  // Filters.
  const lowerCaseTexts = new Map();
  const lowerCaseColumn = (name, textOf) => {
    if (!lowerCaseTexts.has(name)) lowerCaseTexts.set(name, Array.from({length: count}, (_, row) => textOf(row).toLowerCase()));
    return lowerCaseTexts.get(name);
  };
  const filters = {search: '', show: 'all', minimumSeconds: NaN, maximumSeconds: NaN};
  const searchColumns = () => [
    lowerCaseColumn('id', (row) => data.ids[row]),
    lowerCaseColumn('reference', (row) => data.reference[row]),
    ...models.map((model) => lowerCaseColumn(model.key, (row) => (typeof model.text[row] === 'string' ? model.text[row] : ''))),
  ];
  const outcomeFilters = [
    ['all', 'all recordings', () => true],
    ['wrong', 'with errors', (row) => models.some((model) => errorCount(model, row) > 0)],
    ['right', 'without errors', (row) => models.every((model) => errorCount(model, row) === 0)],
    ...(models.length > 1 ? [['differ', 'where models differ', (row) => spread()[row] > 0]] : []),
    ['failed', 'failed', (row) => models.some((model) => failureReason(model, row) !== undefined)],
    ...(models.length > 1 ? models.map((model) => [`wrong:${model.key}`, `wrong in ${model.name}`, (row) => errorCount(model, row) > 0]) : []),
  ];
  const filter = () => {
    const tests = [];
    const outcomeFilter = outcomeFilters.find(([key]) => key === filters.show);
    if (filters.show !== 'all') tests.push(outcomeFilter[2]);
    for (const [name, group] of groups) {
      const selected = filters[name];
      if (selected !== undefined && selected !== '') tests.push((row) => group.of[row] === Number(selected));
    }
    if (Number.isFinite(filters.minimumSeconds)) tests.push((row) => seconds(row) >= filters.minimumSeconds);
    if (Number.isFinite(filters.maximumSeconds)) tests.push((row) => seconds(row) <= filters.maximumSeconds);
    for (const word of filters.search.toLowerCase().split(/\s+/).filter(Boolean)) {
      const texts = searchColumns();
      tests.push((row) => texts.some((column) => column[row].includes(word)));
    }
    const matchingRows = [];
    for (let row = 0; row < count; row += 1) if (tests.every((test) => test(row))) matchingRows.push(row);
    filteredRows = Uint32Array.from(matchingRows);
  };

  // The table. The script positions the rows; above `MAX_HEIGHT` one pixel of the scroll bar stands for several rows.
  let visibleColumns = [];
  let cursor = 0; // position in `order`
  let openedRow = -1;
  const headerRow = make('div', {class: 'line top', role: 'row'});
  const rowsElement = make('div', {class: 'rows', role: 'rowgroup'});
  const body = make('div', {class: 'body', role: 'presentation'}, rowsElement);
  const grid = make('div', {class: 'grid', role: 'grid', tabindex: 0, 'aria-label': 'All recordings; arrow keys move, Enter opens'}, headerRow, body);
  const countLine = make('p', {class: 'count', role: 'status'});
  const detailPanel = make('div', {id: 'row', hidden: true});
  const scale = () => Math.max(1, (order.length * ROW) / MAX_HEIGHT);
  const draw = () => {
    const height = order.length * ROW / scale();
    body.style.height = `${height}px`;
    const visibleHeight = grid.clientHeight - headerRow.offsetHeight;
    const first = Math.max(0, Math.min(Math.floor(grid.scrollTop * scale() / ROW), order.length - Math.floor(visibleHeight / ROW)));
    const last = Math.min(order.length, first + Math.ceil(visibleHeight / ROW) + 2);
    const begin = Math.max(0, first - 4);
    const lines = [], pendingReads = [];
    for (let position = begin; position < last; position += 1) {
      const row = order[position];
      const isLoaded = data.ids[row] !== undefined;
      if (!isLoaded) pendingReads.push(data.read(row));
      const line = make('div', {class: position === cursor ? 'line cursor' : 'line', role: 'row', id: `line-${position}`, 'aria-rowindex': position + 2, 'aria-selected': row === openedRow});
      line.dataset.place = position;
      for (const column of visibleColumns) {
        const cell = make('div', {class: column.isText ? 'cell' : 'cell number', role: 'gridcell'}, isLoaded || !column.text ? column.show(row) : '…');
        if (column.isText) cell.dir = 'auto';
        const heat = column.heat ? column.heat(row) : 0;
        if (heat > 0) { cell.classList.add('shade'); cell.style.setProperty('--heat', heat.toFixed(2)); }
        line.append(cell);
      }
      lines.push(line);
    }
    rowsElement.replaceChildren(...lines);
    const offset = scale() > 1 ? grid.scrollTop - (first - begin) * ROW : begin * ROW;
    rowsElement.style.transform = `translateY(${Math.max(0, offset)}px)`;
    grid.setAttribute('aria-activedescendant', `line-${cursor}`);
    if (pendingReads.length) Promise.all(pendingReads).then(draw);
  };
  let isDrawScheduled = false;
  grid.addEventListener('scroll', () => {
    if (isDrawScheduled) return;
    isDrawScheduled = true;
    requestAnimationFrame(() => { isDrawScheduled = false; draw(); });
  });
  const drawHead = () => {
    visibleColumns = columns.filter((each) => each.isVisible);
    // On a phone the first column, which does not scroll, is narrower so that other columns fit.
    const isNarrow = matchMedia('(max-width: 700px)').matches;
    grid.style.setProperty('--tracks', visibleColumns.map((each, index) => (isNarrow && !index ? 'minmax(6rem, 8.5rem)' : each.width)).join(' '));
    grid.setAttribute('aria-colcount', visibleColumns.length);
    headerRow.replaceChildren(...visibleColumns.map((column) => {
      const direction = sorting.key === column.key ? (sorting.isDescending ? 'descending' : 'ascending') : 'none';
      const arrow = direction === 'none' ? '' : sorting.isDescending ? ' ↓' : ' ↑';
      const button = make('button', {type: 'button', title: column.hint, tabindex: 0, onclick: () => sortBy(column)}, column.title + arrow);
      return make('div', {class: column.isText ? 'cell head' : 'cell head number', role: 'columnheader', 'aria-sort': direction}, button);
    }));
  };
  const drawCount = () => {
    const rates = models.map((model) => {
      let errors = 0, units = 0;
      for (const row of filteredRows) if (model.counts[0][row] >= 0) { errors += errorCount(model, row); units += referenceLength(model, row); }
      return `${model.name} ${units ? percent(errors / units) : '–'}`;
    });
    const all = `${count.toLocaleString('en')} recording${count === 1 ? '' : 's'}`;
    const total = filteredRows.length === count ? all : `${filteredRows.length.toLocaleString('en')} of ${all}`;
    countLine.textContent = filteredRows.length ? `${total} · ${data.rate}: ${rates.join(', ')}` : `${total}: nothing fits these filters`;
    grid.setAttribute('aria-rowcount', order.length + 1);
  };
  const readAllTexts = async () => {
    if (data.hasAllTexts) return;
    countLine.textContent = 'Reading the texts of all recordings';
    await data.readAll();
    drawCount();
  };
  const redraw = () => { grid.scrollTop = 0; cursor = 0; drawHead(); drawCount(); draw(); };
  const sortBy = async (column) => {
    if (column.text && !data.hasAllTexts) await readAllTexts();
    const startTime = performance.now();
    // Numbers are sorted downwards first, because readers look for the worst rows; texts are sorted upwards first.
    const isFirstDescending = !column.isText;
    sorting = sorting.key !== column.key ? {key: column.key, isDescending: isFirstDescending} : sorting.isDescending === isFirstDescending ? {key: column.key, isDescending: !isFirstDescending} : {key: null, isDescending: false};
    sort();
    redraw();
    grid.dataset.sorted = (performance.now() - startTime).toFixed(1); // milliseconds, for measurements
    headerRow.querySelector(`:scope > :nth-child(${visibleColumns.indexOf(column) + 1}) button`)?.focus();
  };
  const refilter = async () => {
    if (filters.search.trim()) await readAllTexts();
    filter();
    sort();
    redraw();
  };
  const scrollToCursor = () => {
    const cursorTop = cursor * ROW / scale();
    const visibleHeight = grid.clientHeight - headerRow.offsetHeight;
    if (cursorTop < grid.scrollTop) grid.scrollTop = cursorTop;
    else if (cursorTop + ROW > grid.scrollTop + visibleHeight) grid.scrollTop = cursorTop + ROW - visibleHeight;
    draw();
  };
  const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity};
  grid.addEventListener('keydown', (event) => {
    if (event.target !== grid || !order.length) return;
    if (event.key in steps) {
      cursor = Math.max(0, Math.min(order.length - 1, cursor + steps[event.key]));
      scrollToCursor();
    } else if (event.key === 'Enter' || event.key === ' ') openRecording(order[cursor], true);
    else return;
    event.preventDefault();
  });
  rowsElement.addEventListener('click', (event) => {
    const line = event.target.closest('.line');
    if (!line) return;
    cursor = Number(line.dataset.place);
    openRecording(order[cursor], false);
  });

  // The details of one recording.
  const align = (reference, hypothesis, separator) => {
    const [referenceItems, hypothesisItems] = [reference, hypothesis].map((text) => (text ? text.split(separator).filter(Boolean) : []));
    const width = hypothesisItems.length + 1;
    if ((referenceItems.length + 1) * width > MAX_CELLS) return null;
    const cost = new Uint32Array((referenceItems.length + 1) * width);
    for (let left = 0; left <= referenceItems.length; left += 1) {
      for (let right = 0; right <= hypothesisItems.length; right += 1) {
        const cell = left * width + right;
        if (!left || !right) cost[cell] = left + right;
        else cost[cell] = Math.min(cost[cell - width - 1] + (referenceItems[left - 1] === hypothesisItems[right - 1] ? 0 : 1), cost[cell - width] + 1, cost[cell - 1] + 1);
      }
    }
    const pairs = [];
    let [left, right] = [referenceItems.length, hypothesisItems.length];
    while (left || right) {
      const cell = left * width + right;
      const isEqual = left && right && referenceItems[left - 1] === hypothesisItems[right - 1];
      if (left && right && cost[cell] === cost[cell - width - 1] + (isEqual ? 0 : 1)) { left -= 1; right -= 1; pairs.push([referenceItems[left], hypothesisItems[right]]); }
      else if (left && cost[cell] === cost[cell - width] + 1) { left -= 1; pairs.push([referenceItems[left], null]); }
      else { right -= 1; pairs.push([null, hypothesisItems[right]]); }
    }
    return pairs.reverse();
  };
  const markDifferences = (reference, hypothesis, kind) => {
    const pairs = align(reference, hypothesis, kind === 'W' ? /\s+/ : '\u001f');
    const line = make('dd', {dir: 'auto'});
    if (pairs === null) { line.append((hypothesis || '').replaceAll('\u001f', '')); return line; }
    if (!pairs.length) line.append(make('span', {class: 'quiet'}, 'no words'));
    pairs.forEach(([left, right], index) => {
      if (index && kind === 'W') line.append(' ');
      if (left === right) line.append(right);
      else if (right === null) line.append(make('del', {}, hiddenText('missing: '), left));
      else if (left === null) line.append(make('ins', {}, hiddenText('added: '), right));
      else line.append(make('span', {class: 'wrong'}, make('span', {}, right), make('small', {}, hiddenText(' instead of '), left)));
    });
    return line;
  };
  const shellQuote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const actionButtons = (row) => {
    if (isEmbedded) {
      return ['Transcribe', 'Parity', 'Visualise'].filter((title) => parentTabs.includes(title.toLowerCase())).map((title) => make('button', {type: 'button', title: `Open this recording in ${title}`, onclick: () => postToParent({open: title.toLowerCase(), id: data.ids[row]})}, `Open in ${title}`));
    }
    const place = data.audio[row].startsWith('/') ? data.audio[row] : `${data.root.replace(/\/+$/, '')}/${data.audio[row]}`;
    // The command reads whole files only, no segments, no archives and no addresses.
    if (data.offsets[row] || place.includes('://') || /\.(zip|tgz|tar|tar\.(gz|bz2|xz))\//i.test(place)) return [];
    const [card, runtime, type] = models[0].key.split('|');
    const command = `workbench transcribe ${shellQuote(data.root ? place : data.audio[row])} --model ${shellQuote(card)}${runtime ? ` --runtime ${shellQuote(runtime)}` : ''}${type ? ` --${runtime === 'gguf' ? 'quantization' : 'dtype'} ${shellQuote(type)}` : ''}`;
    return [make('button', {
      type: 'button', title: command,
      onclick: async (event) => {
        try { await navigator.clipboard.writeText(command); event.target.textContent = 'Copied'; } catch { event.target.replaceWith(make('code', {}, command)); }
      },
    }, 'Copy command')];
  };
  const openRecording = async (row, shouldFocus) => {
    openedRow = row;
    if (data.ids[row] === undefined) {
      await data.read(row);
      if (openedRow !== row) return; // the reader has opened another recording meanwhile
    }
    const facts = [...groups.map(([, group]) => groupName(group, row)), seconds(row) >= 0 ? `${seconds(row).toFixed(2)} s` : '', data.offsets[row] ? `${data.audio[row]}, from ${data.offsets[row] / 1000} s` : data.audio[row]];
    const step = (distance, title) => make('button', {type: 'button', onclick: () => { cursor = Math.max(0, Math.min(order.length - 1, cursor + distance)); scrollToCursor(); openRecording(order[cursor], true); }}, title);
    const heading = make('h3', {tabindex: -1}, data.ids[row], make('span', {class: 'quiet'}, facts.filter(Boolean).join(' · ')), make('span', {class: 'steps'}, step(-1, '← Previous'), step(1, 'Next →')));
    const texts = make('dl', {class: 'texts'}, make('div', {}, make('dt', {}, 'Reference'), make('dd', {dir: 'auto'}, data.reference[row] || '(nothing is said)')));
    for (const model of models) {
      const hypothesis = hypothesisOf(model, row);
      const label = `${model.name} `;
      const term = make('dt', {}, label, make('b', {}, percent(errorRate(model, row))));
      if (failureReason(model, row) !== undefined) texts.append(make('div', {}, term, make('dd', {class: 'fault'}, `Failed: ${failureReason(model, row)}`)));
      else if (hypothesis === null) texts.append(make('div', {}, term, make('dd', {class: 'quiet'}, 'not done')));
      else {
        texts.append(make('div', {}, term, markDifferences(referenceUnits(row), hypothesisUnits(model, row), data.kinds[row])));
        if (model.units[row] !== 1) texts.append(make('div', {}, make('dt', {}, 'as written'), make('dd', {class: 'raw', dir: 'auto'}, hypothesis)));
      }
    }
    const sound = document.querySelector(`.recording[data-row="${row}"] audio`);
    const player = make('div', {class: 'player quiet', 'data-id': data.ids[row]});
    if (sound) player.append(make('audio', {controls: 'controls', src: sound.src, 'aria-label': data.ids[row]}));
    else player.append(isEmbedded ? 'Fetching the sound' : 'This file has the sound of the worst and the most different recordings only.');
    detailPanel.replaceChildren(heading, player, texts, make('div', {class: 'doors'}, ...actionButtons(row)));
    detailPanel.hidden = false;
    draw();
    if (!sound) postToParent({look: data.ids[row]});
    detailPanel.scrollIntoView({block: 'nearest', behavior: scrollBehavior()});
    if (shouldFocus) heading.focus({preventScroll: true});
  };
  detailPanel.addEventListener('keydown', (event) => { if (event.key === 'Escape') grid.focus(); });

  // Export.
  const exportRecord = (row) => ({
    id: data.ids[row], audio: data.audio[row], offset: data.offsets[row] / 1000, seconds: seconds(row) >= 0 ? seconds(row) : null,
    ...Object.fromEntries(groups.map(([name, group]) => [name, groupName(group, row) || null])), reference: data.reference[row],
    models: models.map((model) => ({
      model: model.key, text: hypothesisOf(model, row), error: failureReason(model, row) ?? null,
      ...Object.fromEntries(['substitutions', 'deletions', 'insertions', 'hits'].map((name, index) => [name, model.counts[index][row] < 0 ? null : model.counts[index][row]])),
      rate: Number.isFinite(errorRate(model, row)) ? errorRate(model, row) : null,
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
  const csvCell = (value) => {
    let text = value === null || value === undefined ? '' : String(value);
    if (typeof value === 'string' && FORMULA.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const saveCsv = async () => {
    await readAllTexts();
    const parts = [];
    for (const row of order) {
      const {models: results, ...fields} = exportRecord(row);
      for (const result of results) {
        const record = {...fields, ...result};
        if (!parts.length) parts.push(`\ufeff${Object.keys(record).map(csvCell).join(',')}\r\n`); // spreadsheets need the mark to read UTF-8
        parts.push(`${Object.values(record).map(csvCell).join(',')}\r\n`);
      }
    }
    save('evaluation.csv', 'text/csv', parts);
  };
  const saveJson = async () => {
    await readAllTexts();
    save('evaluation.json', 'application/json', [JSON.stringify(Array.from(order, exportRecord))]);
  };

  // The controls above the table.
  let searchTimer = 0;
  const search = make('input', {type: 'search', placeholder: 'words, or part of a name', oninput: (event) => {
    clearTimeout(searchTimer);
    const {value} = event.target;
    searchTimer = setTimeout(() => { filters.search = value; refilter(); }, 120);
  }});
  const makeSelect = (name, options) => make('select', {name, onchange: (event) => { filters[name] = event.target.value; refilter(); }}, ...options.map(([value, title]) => make('option', {value}, title)));
  const secondsInput = (name) => make('input', {type: 'number', min: 0, step: 'any', oninput: (event) => { filters[name] = event.target.value === '' ? NaN : Number(event.target.value); refilter(); }});
  const columnMenu = make('details', {}, make('summary', {}, 'Columns'), make('div', {}, ...columns.slice(1).map((column) => {
    const box = make('input', {type: 'checkbox', checked: Boolean(column.isVisible), onchange: () => { column.isVisible = box.checked; drawHead(); draw(); }});
    return make('label', {}, box, column.title);
  })));
  const tools = make('div', {class: 'tools', role: 'search'},
    make('label', {}, 'Search', search),
    make('label', {class: 'short'}, 'Show', makeSelect('show', outcomeFilters.map(([key, title]) => [key, title]))),
    ...groups.map(([name, group]) => make('label', {class: 'short'}, name[0].toUpperCase() + name.slice(1), makeSelect(name, [['', 'any'], ...group.names.map((value, index) => [index, value])]))),
    make('label', {class: 'short'}, 'Seconds from', secondsInput('minimumSeconds')),
    make('label', {class: 'short'}, 'to', secondsInput('maximumSeconds')),
    columnMenu,
    make('button', {type: 'button', onclick: saveCsv, title: 'The rows below, in their order'}, 'Save CSV'),
    make('button', {type: 'button', onclick: saveJson, title: 'The rows below, in their order'}, 'Save JSON'));
  document.addEventListener('click', (event) => { if (!columnMenu.contains(event.target)) columnMenu.open = false; });
  document.getElementById('rows-table').append(tools, countLine, grid, detailPanel);
  document.getElementById('rows-wait').remove();
  drawHead();
  drawCount();
  draw();
  new ResizeObserver(draw).observe(grid);
  document.documentElement.dataset.ready = performance.now().toFixed(0); // milliseconds since the navigation began
  for (const column of columns) if (column.isVisible && column.sortKeys) whenIdle(() => sortRows(column));
  data.readInBackground().then(() => {
    for (const holder of document.querySelectorAll('.recording .doors')) holder.append(...actionButtons(Number(holder.dataset.row)));
    document.documentElement.dataset.whole = performance.now().toFixed(0);
    for (const column of columns) if (column.isVisible && column.text) whenIdle(() => sortRows(column));
  }).catch(showError);
};

unpack().then(start).catch(showError);
