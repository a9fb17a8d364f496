// A search, frame by frame: draws `props.value`, which panels/decode/record_view.py makes. Nothing goes to the server.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.search') || element;
const GUTTER = 76, ROW = 15, MOST_LINES = 16; // pixels of the labels and of a row; lines of the tree
let frame = 0;
let parts = null; // the elements that change with the frame

const make = (tag, attributes = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};
const number = (value) => (Number.isFinite(value) ? value.toFixed(2).replace('-', '−') : '−∞');
const signed = (value) => (value > 0 ? '+' : '') + number(value);
const when = (at, value) => `Frame ${at + 1}${value.seconds ? ` (${(at * value.seconds + value.begin).toFixed(2)} s)` : ''}`;
const colour = (name) => getComputedStyle(holder).getPropertyValue(name).trim();

// The posteriors, one picture point for each frame and token, as shades of the accent colour.
const shades = (value) => {
  const bytes = atob(value.grid);
  const picture = make('canvas', {width: value.frames.length, height: value.labels.length});
  const context = picture.getContext('2d');
  const image = context.createImageData(picture.width, picture.height);
  const probe = make('canvas', {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
  probe.fillStyle = colour('--accent') || '#0e6e70';
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  for (let at = 0; at < bytes.length; at += 1) image.data.set([red, green, blue, bytes.charCodeAt(at)], 4 * at);
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
  pen.font = `11px ${getComputedStyle(holder).fontFamily}`;
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
  value.path.forEach((row, at) => {
    const y = ROW * (row + 0.5);
    pen.lineTo(GUTTER + at * step + (count > 200 ? 0 : 0.5), y);
    pen.lineTo(GUTTER + (at + 1) * step - (count > 200 ? 0 : 0.5), y);
  });
  pen.stroke();
  pen.fillStyle = colour('--cursor');
  pen.fillRect(GUTTER + frame * step, 0, Math.max(step, 2), height);
  parts.step = step;
};

// The living hypotheses as a tree: chains without a branch are one node.
const tree = (value, living) => {
  const wanted = new Map(living.map((line, rank) => [line[0], {line, rank}]));
  const children = new Map();
  const seen = new Set();
  for (const [id] of wanted) {
    for (let at = id; at > 0 && !seen.has(at); at = value.prefixes[at][0]) {
      seen.add(at);
      const parent = value.prefixes[at][0];
      children.set(parent, [...(children.get(parent) || []), at]);
    }
  }
  const best = new Map(); // the best rank below a node
  const rankOf = (id) => {
    if (!best.has(id)) {
      best.set(id, Math.min(wanted.get(id)?.rank ?? Infinity, ...(children.get(id) || []).map(rankOf)));
    }
    return best.get(id);
  };
  const lines = [];
  const walk = (id, depth, said) => {
    const below = [...(children.get(id) || [])].sort((one, other) => rankOf(one) - rankOf(other));
    const name = said + (id ? value.prefixes[id][1] : '');
    if (!wanted.has(id) && below.length === 1) return walk(below[0], depth, name);
    lines.push({id, depth, name, ...(wanted.get(id) || {})});
    for (const each of below) walk(each, depth + 1, '');
  };
  walk(0, 0, '');
  return lines;
};

const textOf = (value, id) => {
  const said = [];
  for (let at = id; at > 0; at = value.prefixes[at][0]) said.unshift(value.prefixes[at][1]);
  return said.join('').trim() || '(nothing yet)';
};

// What the terms were one frame before: of the hypothesis itself, or of the one that it was made of.
const before = (value, at, id) => {
  if (at === 0) return null;
  const lines = value.frames[at - 1].living;
  return lines.find((each) => each[0] === id) || lines.find((each) => each[0] === value.prefixes[id][0]) || null;
};

const cells = (value, at, line) => {
  const total = line.slice(1).reduce((sum, each) => sum + each, 0);
  const earlier = before(value, at, line[0]);
  return [
    make('td', {class: 'total'}, number(total)),
    ...line.slice(1).map((each, place) => {
      const cell = make('td', {}, number(each));
      const change = earlier ? each - earlier[place + 1] : 0;
      if (Math.abs(change) >= 0.005) cell.append(make('small', {title: 'at this frame'}, signed(change)));
      return cell;
    }),
  ];
};

const heading = (rank, label) => make('th', {scope: 'row'}, make('div', {class: 'named'}, make('small', {class: 'rank'}, rank), label));
const across = (value, said) => make('tr', {class: 'trunk'}, make('th', {colspan: value.terms.length + 2}, make('span', {class: 'note'}, said)));

const drawFrame = (value) => {
  const {living, pruned, more, dropped, alike} = value.frames[frame];
  const body = make('tbody');
  for (const {line, rank, depth, name} of tree(value, living.slice(0, MOST_LINES))) {
    const label = make('span', {class: depth ? 'branch' : null, style: `--depth:${Math.min(depth, 8)}`}, name.trim() || (depth ? '·' : '(start)'));
    if (line && alike.includes(line[0])) {
      label.append(make('b', {class: 'alike', title: 'homophone: other words of the same tokens live too'}, '≡', make('span', {class: 'sr'}, ' homophone')));
    }
    const row = make('tr', {class: line ? (rank === 0 ? 'living first' : 'living') : 'trunk'});
    row.append(heading(line ? String(rank + 1) : '', label));
    row.append(...(line ? cells(value, frame, line) : [make('td', {colspan: value.terms.length + 1})]));
    body.append(row);
  }
  const hidden = Math.max(living.length - MOST_LINES, 0) + (more || 0);
  if (hidden) {
    const said = `and ${hidden} more living hypotheses`;
    body.append(across(value, said));
  }
  const gone = make('tbody', {class: 'gone'});
  if (pruned.length) {
    const said = `Pruned at this frame: ${dropped} candidates; the best of them:`;
    gone.append(across(value, said));
  }
  for (const line of pruned) {
    const name = make('span', {}, textOf(value, line[0]));
    const row = make('tr', {}, heading('✕', name));
    if (value.lost && value.lost.frame === frame && value.lost.id === line[0]) {
      name.append(make('b', {class: 'would'}, 'would have won'));
    }
    row.append(...cells(value, frame, line));
    gone.append(row);
  }
  parts.table.replaceChildren(parts.head, body, gone);
  parts.output.textContent = `${when(frame, value)} of ${value.frames.length}`;
  parts.range.value = frame;
  parts.range.setAttribute('aria-valuetext', `${when(frame, value)}: ${living.length ? textOf(value, living[0][0]) : ''}`);
  for (const each of parts.moments.querySelectorAll('button')) {
    each.setAttribute('aria-pressed', Number(each.dataset.frame) === frame);
  }
};

const go = (to) => {
  frame = Math.min(Math.max(to, 0), props.value.frames.length - 1);
  drawFrame(props.value);
  drawPicture(props.value);
  const at = GUTTER + frame * parts.step;
  if (at < parts.box.scrollLeft + GUTTER || at > parts.box.scrollLeft + parts.box.clientWidth) {
    parts.box.scrollLeft = at - parts.box.clientWidth / 2;
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
  const back = make('button', {type: 'button', class: 'quiet', 'aria-label': 'One frame back'}, '◀');
  const on = make('button', {type: 'button', class: 'quiet', 'aria-label': 'One frame on'}, '▶');
  const output = make('output');
  const moments = make('ul', {class: 'moments'});
  for (const moment of value.moments) {
    const button = make('button', {type: 'button', class: 'quiet', 'data-frame': moment.frame}, when(moment.frame, value));
    button.addEventListener('click', () => go(moment.frame));
    moments.append(make('li', {}, button, make('span', {}, moment.sentence)));
  }
  const head = make('thead', {}, make('tr', {}, ...['Living hypotheses', 'score', ...value.terms].map((each) => make('th', {scope: 'col'}, each))));
  const table = make('table', {class: 'beams'});
  const caption = make('p', {class: 'muted small'}, value.frames.some((each) => each.alike.length) ? `${value.caption} ≡ marks homophones: other words of the same tokens live too.` : value.caption);
  parts = {canvas, box, range, output, moments, head, table};
  holder.replaceChildren(box, caption, make('div', {class: 'stepper'}, back, range, on, output), moments, make('div', {class: 'scroll'}, table));
  parts.shades = shades(value);
  range.addEventListener('input', () => go(Number(range.value)));
  back.addEventListener('click', () => go(frame - 1));
  on.addEventListener('click', () => go(frame + 1));
  canvas.addEventListener('click', (event) => go(Math.floor((event.offsetX - GUTTER) / parts.step)));
  go(frame);
};

new ResizeObserver(() => { if (parts && parts.canvas.isConnected) drawPicture(props.value); }).observe(holder);
watch('value', draw);
draw();
