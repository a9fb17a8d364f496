// A beam search, frame by frame: draws `props.value` of panels/decode/record_view.py. It sends nothing to the server.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.search') || element;
const TEXT = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16; // how many times its usual size the text is
const GUTTER = 76 * TEXT, ROW = 15 * TEXT, MAX_LINES = 16; // pixels of the label column, pixels of a row, lines of the tree
let frame = 0;
let parts = null; // the elements that change with the frame

const make = (tag, attributes = {}, ...content) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...content);
  return node;
};
const number = (value) => (Number.isFinite(value) ? value.toFixed(2).replace('-', '−') : '−∞');
const signed = (value) => (value > 0 ? '+' : '') + number(value);
const frameLabel = (index, value) => `Frame ${index + 1}${value.seconds ? ` (${(index * value.seconds + value.begin).toFixed(2)} s)` : ''}`;
const colour = (name) => getComputedStyle(holder).getPropertyValue(name).trim();

// Returns a canvas of the posteriors, one pixel for each frame and token, in shades of the accent colour.
const shades = (value) => {
  const bytes = atob(value.grid);
  const picture = make('canvas', {width: value.frames.length, height: value.labels.length});
  const context = picture.getContext('2d');
  const image = context.createImageData(picture.width, picture.height);
  const probe = make('canvas', {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  probe.fillStyle = colour('--accent') || '#0e6e70';
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  for (let pixel = 0; pixel < bytes.length; pixel += 1) image.data.set([red, green, blue, bytes.charCodeAt(pixel)], 4 * pixel);
  context.putImageData(image, 0, 0);
  return picture;
};

const drawPicture = (value) => {
  const {canvas} = parts;
  const count = value.frames.length;
  const width = Math.max(parts.box.clientWidth, GUTTER + 3 * count);
  const height = ROW * value.labels.length;
  const density = window.devicePixelRatio || 1;
  const step = (width - GUTTER) / count;
  canvas.width = width * density;
  canvas.height = height * density;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(density, density);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(parts.shades, GUTTER, 0, width - GUTTER, height);
  pen.font = `${11 * TEXT}px ${getComputedStyle(holder).fontFamily}`;
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  value.labels.forEach((label, row) => {
    pen.fillStyle = colour('--line');
    pen.fillRect(GUTTER, ROW * (row + 1) - 1, width - GUTTER, 0.5);
    pen.fillStyle = colour('--muted');
    pen.fillText(label, GUTTER - 6, ROW * (row + 0.5), GUTTER - 8);
  });
  // The best alignment: a line through the token of each frame.
  pen.strokeStyle = colour('--path');
  pen.lineWidth = 1.6;
  pen.beginPath();
  value.path.forEach((row, index) => {
    const y = ROW * (row + 0.5);
    pen.lineTo(GUTTER + index * step + (count > 200 ? 0 : 0.5), y);
    pen.lineTo(GUTTER + (index + 1) * step - (count > 200 ? 0 : 0.5), y);
  });
  pen.stroke();
  pen.fillStyle = colour('--cursor');
  pen.fillRect(GUTTER + frame * step, 0, Math.max(step, 2), height);
  parts.step = step;
};

// Returns the active hypotheses as lines of a prefix tree; a chain without branches is one line.
const buildTree = (value, active) => {
  const hypotheses = new Map(active.map((line, rank) => [line[0], {line, rank}]));
  const children = new Map();
  const visited = new Set();
  for (const [id] of hypotheses) {
    for (let node = id; node > 0 && !visited.has(node); node = value.prefixes[node][0]) {
      visited.add(node);
      const parent = value.prefixes[node][0];
      children.set(parent, [...(children.get(parent) || []), node]);
    }
  }
  const bestRanks = new Map(); // node to the best rank among its descendants
  const rankOf = (id) => {
    if (!bestRanks.has(id)) {
      bestRanks.set(id, Math.min(hypotheses.get(id)?.rank ?? Infinity, ...(children.get(id) || []).map(rankOf)));
    }
    return bestRanks.get(id);
  };
  const lines = [];
  const walk = (id, depth, prefix) => {
    const branches = [...(children.get(id) || [])].sort((first, second) => rankOf(first) - rankOf(second));
    const text = prefix + (id ? value.prefixes[id][1] : '');
    if (!hypotheses.has(id) && branches.length === 1) return walk(branches[0], depth, text);
    lines.push({id, depth, text, ...(hypotheses.get(id) || {})});
    for (const branch of branches) walk(branch, depth + 1, '');
  };
  walk(0, 0, '');
  return lines;
};

const textOf = (value, id) => {
  const tokens = [];
  for (let node = id; node > 0; node = value.prefixes[node][0]) tokens.unshift(value.prefixes[node][1]);
  return tokens.join('').trim() || '(nothing yet)';
};

// Returns the terms of a hypothesis one frame earlier, else those of the hypothesis that it extends, else null.
const previousLine = (value, index, id) => {
  if (index === 0) return null;
  const lines = value.frames[index - 1].active;
  return lines.find((each) => each[0] === id) || lines.find((each) => each[0] === value.prefixes[id][0]) || null;
};

const cells = (value, index, line) => {
  const total = line.slice(1).reduce((sum, each) => sum + each, 0);
  const previous = previousLine(value, index, line[0]);
  return [
    make('td', {class: 'total'}, number(total)),
    ...line.slice(1).map((score, term) => {
      const cell = make('td', {}, number(score));
      const change = previous ? score - previous[term + 1] : 0;
      if (Math.abs(change) >= 0.005) cell.append(make('small', {title: 'at this frame'}, signed(change)));
      return cell;
    }),
  ];
};

const heading = (rank, label) => make('th', {scope: 'row'}, make('div', {class: 'named'}, make('small', {class: 'rank'}, rank), label));
const fullRow = (value, text) => make('tr', {class: 'trunk'}, make('th', {colspan: value.terms.length + 2}, make('span', {class: 'note'}, text)));

const drawFrame = (value) => {
  const {active, pruned, more, dropped, alike} = value.frames[frame];
  const body = make('tbody');
  for (const {line, rank, depth, text} of buildTree(value, active.slice(0, MAX_LINES))) {
    const label = make('span', {class: depth ? 'branch' : null, style: `--depth:${Math.min(depth, 8)}`}, text.trim() || (depth ? '·' : '(start)'));
    if (line && alike.includes(line[0])) {
      label.append(make('b', {class: 'alike', title: 'homophone: other words of the same tokens live too'}, '≡', make('span', {class: 'sr'}, ' homophone')));
    }
    const row = make('tr', {class: line ? (rank === 0 ? 'active first' : 'active') : 'trunk'});
    row.append(heading(line ? String(rank + 1) : '', label));
    row.append(...(line ? cells(value, frame, line) : [make('td', {colspan: value.terms.length + 1})]));
    body.append(row);
  }
  const hiddenCount = Math.max(active.length - MAX_LINES, 0) + (more || 0);
  if (hiddenCount) {
    const text = `and ${hiddenCount} more active hypotheses`;
    body.append(fullRow(value, text));
  }
  const prunedBody = make('tbody', {class: 'gone'});
  if (pruned.length) {
    const text = `Pruned at this frame: ${dropped} candidates; the best of them:`;
    prunedBody.append(fullRow(value, text));
  }
  for (const line of pruned) {
    const label = make('span', {}, textOf(value, line[0]));
    const row = make('tr', {}, heading('✕', label));
    if (value.lost && value.lost.frame === frame && value.lost.id === line[0]) {
      label.append(make('b', {class: 'would'}, 'would have won'));
    }
    row.append(...cells(value, frame, line));
    prunedBody.append(row);
  }
  parts.table.replaceChildren(parts.header, body, prunedBody);
  parts.output.textContent = `${frameLabel(frame, value)} of ${value.frames.length}`;
  parts.range.value = frame;
  parts.range.setAttribute('aria-valuetext', `${frameLabel(frame, value)}: ${active.length ? textOf(value, active[0][0]) : ''}`);
  for (const each of parts.moments.querySelectorAll('button')) {
    each.setAttribute('aria-pressed', Number(each.dataset.frame) === frame);
  }
};

const showFrame = (index) => {
  frame = Math.min(Math.max(index, 0), props.value.frames.length - 1);
  drawFrame(props.value);
  drawPicture(props.value);
  const cursorX = GUTTER + frame * parts.step;
  if (cursorX < parts.box.scrollLeft + GUTTER || cursorX > parts.box.scrollLeft + parts.box.clientWidth) {
    parts.box.scrollLeft = cursorX - parts.box.clientWidth / 2;
  }
};

const draw = () => {
  const value = props.value;
  if (!value || !value.frames || !value.frames.length) {
    parts = null;
    holder.replaceChildren();
    return;
  }
  frame = Math.min(value.at ?? 0, value.frames.length - 1);
  const canvas = make('canvas', {role: 'img', 'aria-label': value.alternative});
  const box = make('div', {class: 'posteriors'}, canvas);
  const range = make('input', {type: 'range', min: 0, max: value.frames.length - 1, step: 1, 'aria-label': 'Frame of the search'});
  const previousButton = make('button', {type: 'button', class: 'quiet', 'aria-label': 'One frame back'}, '◀');
  const nextButton = make('button', {type: 'button', class: 'quiet', 'aria-label': 'One frame on'}, '▶');
  const output = make('output');
  const moments = make('ul', {class: 'moments'});
  for (const moment of value.moments) {
    const button = make('button', {type: 'button', class: 'quiet', 'data-frame': moment.frame}, frameLabel(moment.frame, value));
    button.addEventListener('click', () => showFrame(moment.frame));
    moments.append(make('li', {}, button, make('span', {}, moment.sentence)));
  }
  const header = make('thead', {}, make('tr', {}, ...['Active hypotheses', 'score', ...value.terms].map((each) => make('th', {scope: 'col'}, each))));
  const table = make('table', {class: 'beams'});
  const caption = make('p', {class: 'muted small'}, value.frames.some((each) => each.alike.length) ? `${value.caption} ≡ marks homophones: other words of the same tokens live too.` : value.caption);
  parts = {canvas, box, range, output, moments, header, table};
  holder.replaceChildren(box, caption, make('div', {class: 'stepper'}, previousButton, range, nextButton, output), moments, make('div', {class: 'scroll'}, table));
  parts.shades = shades(value);
  range.addEventListener('input', () => showFrame(Number(range.value)));
  previousButton.addEventListener('click', () => showFrame(frame - 1));
  nextButton.addEventListener('click', () => showFrame(frame + 1));
  canvas.addEventListener('click', (event) => showFrame(Math.floor((event.offsetX - GUTTER) / parts.step)));
  showFrame(frame);
};

import(new URL('chat/scripts/dom.js', document.baseURI)).then(({observeSize}) => {
  observeSize(holder, () => { if (parts && parts.canvas.isConnected) drawPicture(props.value); });
});
watch('value', draw);
draw();
