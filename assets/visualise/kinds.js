// How each kind of layer is drawn into a chart, and what it says of a cell or a moment.
import {LINES, themed} from './colours.js';
import {number} from './parcel.js';
import {canvas, shortened} from './paint.js';

const colour = (chart, layer, index) => {
  if (layer.labels.length < 2 && layer.values.shape[0] < 2) {
    const before = chart.layers.slice(0, chart.layers.indexOf(layer)).filter((each) => each.kind === 'lines' || each.kind === 'bars').length;
    return LINES[before % LINES.length];
  }
  return LINES[index % LINES.length];
};

// Part of an image with its columns drawn together to so many points. Its rows stay apart: to draw both in one step would
// mix neighbouring rows where these are high.
const narrowed = (part, left, row, columns, rows, points) => {
  const made = canvas(Math.max(Math.round(points * (window.devicePixelRatio || 1)), 1), rows);
  const pen = made.getContext('2d');
  pen.imageSmoothingQuality = 'high';
  pen.drawImage(part, left, row, columns, rows, 0, 0, made.width, rows);
  return made;
};

const image = (chart, pen, layer) => {
  const [first, last] = chart.rows;
  const [top, bottom] = [Math.max(Math.floor(first), 0), Math.min(Math.ceil(last), layer.y.count)];
  if (bottom <= top) return;
  const stretched = chart.cellX(layer.x, 1) - chart.cellX(layer.x, 0);
  const flat = Math.abs(chart.cellY(1) - chart.cellY(0)) < 1;
  pen.imageSmoothingEnabled = flat;
  pen.imageSmoothingQuality = 'high';
  const ends = [chart.cellY(top), chart.cellY(bottom)];
  const row = layer.y.up ? layer.y.count - bottom : top;
  for (const {first: begin, part} of chart.painted(layer)) {
    let [left, right] = [0, part.width];
    if (layer.x.time) {
      left = Math.max(left, Math.floor((chart.link.from - layer.x.time[0]) / layer.x.time[1]) - begin);
      right = Math.min(right, Math.ceil((chart.link.to - layer.x.time[0]) / layer.x.time[1]) - begin);
    }
    if (right <= left) continue;
    const [from, to] = [chart.cellX(layer.x, begin + left), chart.cellX(layer.x, begin + right)];
    const place = [from, Math.min(...ends), to - from, Math.abs(ends[1] - ends[0])];
    if (stretched >= 1 || flat) pen.drawImage(part, left, row, right - left, bottom - top, ...place);
    else {
      const made = narrowed(part, left, row, right - left, bottom - top, to - from);
      pen.drawImage(made, 0, 0, made.width, made.height, ...place);
    }
  }
};

// Lines with more points than the screen has are drawn as their least and greatest value in each point of the screen.
const lines = (chart, pen, layer) => {
  const {values, x} = layer;
  const points = values.shape.at(-1);
  const count = values.shape.length > 1 ? values.shape[0] : 1;
  const middle = x.time ? 0.5 : 0;
  let [from, to] = [0, points];
  if (x.time) {
    from = Math.max(0, Math.floor((chart.link.from - x.time[0]) / x.time[1]) - 1);
    to = Math.min(points, Math.ceil((chart.link.to - x.time[0]) / x.time[1]) + 1);
  }
  for (let line = 0; line < count; line += 1) {
    pen.strokeStyle = colour(chart, layer, line);
    pen.lineWidth = 1.4;
    pen.beginPath();
    const per = Math.max(1, Math.floor((to - from) / (2 * chart.width)));
    let broken = true;
    for (let begin = from; begin < to; begin += per) {
      let [low, high] = [Infinity, -Infinity];
      for (let point = begin; point < Math.min(begin + per, to); point += 1) {
        const value = values.at(line * points + point);
        if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
      }
      if (low > high) { broken = true; continue; }
      const at = chart.cellX(x, begin + (per > 1 ? per / 2 : middle));
      if (broken) pen.moveTo(at, chart.valueY(low));
      else pen.lineTo(at, chart.valueY(low));
      if (high > low) pen.lineTo(at, chart.valueY(high));
      broken = false;
    }
    pen.stroke();
  }
};

const bars = (chart, pen, layer) => {
  const {values, x} = layer;
  const count = values.shape.at(-1);
  const zero = chart.layer.kind === 'image' ? chart.height : chart.valueY(0);
  pen.fillStyle = colour(chart, layer, 0);
  for (let cell = 0; cell < count; cell += 1) {
    const value = values.at(cell);
    const [from, to] = [chart.cellX(x, cell), chart.cellX(x, cell + 1)];
    if (!Number.isFinite(value) || to < chart.left || from > chart.left + chart.width) continue;
    const [gap, y] = [to - from > 4 ? 1 : 0, chart.valueY(value)];
    pen.fillRect(from + gap / 2, Math.min(y, zero), Math.max(to - from - gap, 0.6), Math.abs(zero - y));
    if (layer.labels[cell] && to - from > 14) {
      pen.save();
      pen.fillStyle = chart.drawn.muted;
      pen.textAlign = 'center';
      pen.fillText(shortened(pen, layer.labels[cell], to - from - 2), (from + to) / 2, Math.max(Math.min(y, zero) - 7, 7));
      pen.restore();
    }
  }
};

const marks = (chart, pen, layer) => {
  pen.fillStyle = chart.layer.kind === 'image' ? '#ffffff' : LINES[1];
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  let free = -Infinity;
  for (let index = 0; index < layer.values.codes.length; index += 1) {
    const at = chart.placeX(layer.x, layer.values.at(index));
    if (chart.layer.kind === 'image') {
      pen.globalAlpha = 0.85;
      pen.fillRect(at - 0.5, 0, 1, chart.height);
      pen.globalAlpha = 1;
    } else pen.fillRect(at - 0.75, 0, 1.5, chart.height);
    const label = layer.labels[index];
    if (!label || at < free || at > chart.left + chart.width) continue;
    const said = shortened(pen, label, 90);
    const width = pen.measureText(said).width;
    pen.save();
    if (chart.layer.kind === 'image') {
      pen.fillStyle = 'rgb(0 0 0 / 55%)';
      pen.fillRect(at + 1, 1, width + 6, 14);
      pen.fillStyle = '#ffffff';
    } else pen.fillStyle = chart.drawn.ink;
    pen.fillText(said, at + 4, 8);
    pen.restore();
    free = at + width + 8;
  }
};

const spans = (chart, pen, layer) => {
  const over = layer !== chart.layer;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  const high = over ? 18 : chart.height - 4;
  for (let index = 0; index < layer.values.shape[0]; index += 1) {
    const [from, to] = [chart.placeX(layer.x, layer.values.at(2 * index)), chart.placeX(layer.x, layer.values.at(2 * index + 1))];
    if (to < chart.left || from > chart.left + chart.width) continue;
    const wide = Math.max(to - from - 1, 1);
    pen.globalAlpha = over ? 0.75 : 1;
    pen.fillStyle = over ? chart.drawn.surface : themed(chart.root, '--accent-soft');
    pen.fillRect(from + 0.5, 2, wide, high);
    pen.globalAlpha = 1;
    if (wide > 3) {
      pen.strokeStyle = chart.drawn.accent;
      pen.lineWidth = 0.8;
      pen.strokeRect(from + 0.5, 2, wide, high);
    }
    const [left, right] = [Math.max(from, chart.left), Math.min(to, chart.left + chart.width)];
    const label = layer.labels[index] || '';
    const next = index + 1 < layer.values.shape[0] ? chart.placeX(layer.x, layer.values.at(2 * index + 2)) : chart.left + chart.width;
    pen.fillStyle = chart.drawn.ink;
    // A label that does not fit inside stands behind, if there is room before the next.
    if (pen.measureText(label).width > right - left - 4 && next - right > right - left) {
      pen.textAlign = 'left';
      if (next - right > 12) pen.fillText(shortened(pen, label, next - right - 6), right + 3, 2 + high / 2);
      pen.textAlign = 'center';
    } else if (right - left > 9) pen.fillText(shortened(pen, label, right - left - 4), (left + right) / 2, 2 + high / 2);
  }
};

const band = (chart, pen, layer) => {
  const count = layer.values.shape[1];
  pen.fillStyle = LINES[0];
  for (let cell = 0; cell < count; cell += 1) {
    const [from, to] = [chart.cellX(layer.x, cell), chart.cellX(layer.x, cell + 1)];
    if (to < chart.left || from > chart.left + chart.width) continue;
    const [bottom, top] = [chart.valueY(layer.values.at(cell)), chart.valueY(layer.values.at(count + cell))];
    pen.fillRect(from, top, Math.max(to - from, 1), Math.max(bottom - top, 1));
  }
};

// Where points stand: [place along, place up] of each.
const places = (chart, layer) => {
  if (layer.places?.width === chart.width) return layer.places.found;
  const {values} = layer;
  const ends = [[Infinity, -Infinity], [Infinity, -Infinity]];
  for (const {values: {codes}} of chart.layers.filter((each) => each.kind === 'points')) {
    codes.forEach((value, index) => {
      const range = ends[index % 2];
      if (Number.isFinite(value)) { range[0] = Math.min(range[0], value); range[1] = Math.max(range[1], value); }
    });
  }
  const share = (value, [low, high]) => (high > low ? 0.06 + 0.88 * (value - low) / (high - low) : 0.5);
  const found = Array.from({length: values.shape[0]}, (_, index) => [
    chart.left + share(values.at(2 * index), ends[0]) * chart.width, (1 - share(values.at(2 * index + 1), ends[1])) * chart.height]);
  layer.places = {width: chart.width, found};
  return found;
};

// Points over another layer stand on its axes.
const path = (chart, pen, layer) => {
  const size = Math.min(Math.max(Math.abs(chart.cellY(0) - chart.cellY(1)) / 3, 1.5), 4);
  for (let index = 0; index < layer.values.shape[0]; index += 1) {
    const [x, y] = [chart.placeX(layer.x, layer.values.at(2 * index)), chart.valueY(layer.values.at(2 * index + 1))];
    if (x < chart.left - size || x > chart.left + chart.width + size) continue;
    pen.beginPath();
    pen.arc(x, y, size, 0, 7);
    pen.fillStyle = LINES[1];
    pen.fill();
    pen.lineWidth = 0.7;
    pen.strokeStyle = chart.drawn.surface;
    pen.stroke();
  }
};

const points = (chart, pen, layer) => {
  if (chart.layer.kind !== 'points') { path(chart, pen, layer); return; }
  const quiet = layer !== chart.layers.findLast((each) => each.kind === 'points'); // the background of other points
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  const taken = [];
  places(chart, layer).forEach(([x, y], index) => {
    pen.fillStyle = quiet ? themed(chart.root, '--wave') : LINES[0];
    pen.globalAlpha = quiet ? 0.5 : 0.85;
    pen.beginPath();
    pen.arc(x, y, quiet ? 2.5 : 4, 0, 7);
    pen.fill();
    pen.globalAlpha = 1;
    const label = shortened(pen, layer.labels[index] || '', 90);
    const wide = pen.measureText(label).width;
    const left = x + 9 + wide > chart.left + chart.width ? x - 7 - wide : x + 7; // at the right edge, on the other side
    const box = [left, y - 7, left + 2 + wide, y + 7];
    if (!label || taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return;
    taken.push(box);
    pen.fillStyle = chart.drawn.ink;
    pen.fillText(label, left, y);
  });
};

const nearest = (chart, layer, point) => {
  let [best, least] = [-1, 20 ** 2];
  places(chart, layer).forEach(([x, y], index) => {
    const far = (x - point[0]) ** 2 + (y - point[1]) ** 2;
    if (far < least) { best = index; least = far; }
  });
  return best;
};

// A ring around the point that is pointed at.
const ring = (chart, pen, here) => {
  for (const layer of chart.layers.filter((each) => each.kind === 'points' && each.labels.length)) {
    const index = here.point ? nearest(chart, layer, here.point) : -1;
    if (index < 0) continue;
    const [x, y] = places(chart, layer)[index];
    pen.strokeStyle = chart.drawn.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 7, 0, 7);
    pen.stroke();
  }
};

// What a layer says of the cell that is pointed at, or of a moment; an empty text where it has nothing to say.
const read = (chart, layer, here, time) => {
  const {values, x, y, labels} = layer;
  if (layer.kind === 'points') {
    const index = chart.layer.kind === 'points' && here?.point ? nearest(chart, layer, here.point) : -1;
    const label = labels[index] || (chart.layers.length > 1 ? '' : String(index));
    return index < 0 || !label ? '' : `${label}: ${number(values.at(2 * index))}, ${number(values.at(2 * index + 1))}`;
  }
  if (layer.kind === 'marks' || layer.kind === 'wave') return '';
  if (layer.kind === 'spans') {
    for (let index = 0; time !== null && index < values.shape[0]; index += 1) {
      if (time >= values.at(2 * index) && time < values.at(2 * index + 1)) return labels[index] || '';
    }
    return '';
  }
  const column = here ? here.x : time === null ? -1 : x.at(time);
  if (column < 0) return '';
  if (layer.kind === 'image') {
    if (!here || here.y < 0) return '';
    return `${x.name(column)} · ${y.name(here.y)} · ${layer.scale ? `${layer.scale.name} ` : ''}${number(values.at(here.y * x.count + column))}`;
  }
  const count = (layer.kind === 'lines' || layer.kind === 'band') && values.shape.length > 1 ? values.shape[0] : 1;
  const points = values.shape.at(-1);
  const said = Array.from({length: Math.min(count, 4)}, (_, line) =>
    `${count > 1 && labels[line] ? `${labels[line]} ` : ''}${number(values.at(line * points + column))}`).join(', ');
  return `${here ? `${x.name(column)} · ` : ''}${said}${count > 4 ? ', …' : ''}`;
};

// The recording itself, as the least and greatest sample of each point of the screen.
const wave = (chart, pen, layer) => {
  const {samples, rate} = layer;
  const per = (chart.link.to - chart.link.from) * rate / chart.width;
  const middle = chart.height / 2;
  layer.most ||= samples.reduce((most, value) => Math.max(most, Math.abs(value)), 600);
  pen.fillStyle = themed(chart.root, '--wave');
  for (let x = 0; x < chart.width; x += 1) {
    const begin = Math.floor(chart.link.from * rate + x * per);
    const end = Math.min(Math.max(Math.floor(begin + per), begin + 1), samples.length);
    let [low, high] = [0, 0];
    for (let place = begin; place < end; place += 1) {
      if (samples[place] < low) low = samples[place];
      else if (samples[place] > high) high = samples[place];
    }
    pen.fillRect(chart.left + x, middle - high / layer.most * middle, 1, Math.max((high - low) / layer.most * middle, 1));
  }
};

export const draws = {image, lines, band, bars, marks, spans, points, wave, read, colour, ring};
