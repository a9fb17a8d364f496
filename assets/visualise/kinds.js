// Draws each kind of layer into a chart, and describes its values at a cell or a time.
import {LINES, themed} from './colours.js';
import {number} from './parcel.js';
import {makeCanvas, shortenEnd} from './paint.js';

const colour = (chart, layer, index) => {
  if (layer.labels.length < 2 && layer.values.shape[0] < 2) {
    const earlierCount = chart.layers.slice(0, chart.layers.indexOf(layer)).filter((each) => each.kind === 'lines' || each.kind === 'bars').length;
    return LINES[earlierCount % LINES.length];
  }
  return LINES[index % LINES.length];
};

// Returns a part of an image with its columns scaled down to a width of `points`. The rows are not scaled: scaling both
// in one step would blur neighbouring rows that are several pixels high.
const squeezeColumns = (tile, left, row, columns, rows, points) => {
  const squeezed = makeCanvas(Math.max(Math.round(points * (window.devicePixelRatio || 1)), 1), rows);
  const pen = squeezed.getContext('2d');
  pen.imageSmoothingQuality = 'high';
  pen.drawImage(tile, left, row, columns, rows, 0, 0, squeezed.width, rows);
  return squeezed;
};

const image = (chart, pen, layer) => {
  const [first, last] = chart.rows;
  const [top, bottom] = [Math.max(Math.floor(first), 0), Math.min(Math.ceil(last), layer.y.count)];
  if (bottom <= top) return;
  const cellWidth = chart.cellX(layer.x, 1) - chart.cellX(layer.x, 0);
  const hasThinRows = Math.abs(chart.cellY(1) - chart.cellY(0)) < 1;
  pen.imageSmoothingEnabled = hasThinRows;
  pen.imageSmoothingQuality = 'high';
  const edges = [chart.cellY(top), chart.cellY(bottom)];
  const row = layer.y.up ? layer.y.count - bottom : top;
  for (const {first: firstColumn, tile} of chart.paintTiles(layer)) {
    let [left, right] = [0, tile.width];
    if (layer.x.time) {
      left = Math.max(left, Math.floor((chart.link.from - layer.x.time[0]) / layer.x.time[1]) - firstColumn);
      right = Math.min(right, Math.ceil((chart.link.to - layer.x.time[0]) / layer.x.time[1]) - firstColumn);
    }
    if (right <= left) continue;
    const [from, to] = [chart.cellX(layer.x, firstColumn + left), chart.cellX(layer.x, firstColumn + right)];
    const box = [from, Math.min(...edges), to - from, Math.abs(edges[1] - edges[0])];
    if (cellWidth >= 1 || hasThinRows) pen.drawImage(tile, left, row, right - left, bottom - top, ...box);
    else {
      const squeezed = squeezeColumns(tile, left, row, right - left, bottom - top, to - from);
      pen.drawImage(squeezed, 0, 0, squeezed.width, squeezed.height, ...box);
    }
  }
};

// A line with more values than pixels is drawn as its minimum and maximum in each pixel column.
const lines = (chart, pen, layer) => {
  const {values, x} = layer;
  const points = values.shape.at(-1);
  const count = values.shape.length > 1 ? values.shape[0] : 1;
  const cellOffset = x.time ? 0.5 : 0;
  let [from, to] = [0, points];
  if (x.time) {
    from = Math.max(0, Math.floor((chart.link.from - x.time[0]) / x.time[1]) - 1);
    to = Math.min(points, Math.ceil((chart.link.to - x.time[0]) / x.time[1]) + 1);
  }
  for (let line = 0; line < count; line += 1) {
    pen.strokeStyle = colour(chart, layer, line);
    pen.lineWidth = 1.4;
    pen.beginPath();
    const stride = Math.max(1, Math.floor((to - from) / (2 * chart.width)));
    let isBroken = true;
    for (let begin = from; begin < to; begin += stride) {
      let [low, high] = [Infinity, -Infinity];
      for (let point = begin; point < Math.min(begin + stride, to); point += 1) {
        const value = values.at(line * points + point);
        if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
      }
      if (low > high) { isBroken = true; continue; }
      const lineX = chart.cellX(x, begin + (stride > 1 ? stride / 2 : cellOffset));
      if (isBroken) pen.moveTo(lineX, chart.valueY(low));
      else pen.lineTo(lineX, chart.valueY(low));
      if (high > low) pen.lineTo(lineX, chart.valueY(high));
      isBroken = false;
    }
    pen.stroke();
  }
};

const bars = (chart, pen, layer) => {
  const {values, x} = layer;
  const count = values.shape.at(-1);
  const zeroY = chart.layer.kind === 'image' ? chart.height : chart.valueY(0);
  pen.fillStyle = colour(chart, layer, 0);
  for (let cell = 0; cell < count; cell += 1) {
    const value = values.at(cell);
    const [from, to] = [chart.cellX(x, cell), chart.cellX(x, cell + 1)];
    if (!Number.isFinite(value) || to < chart.left || from > chart.left + chart.width) continue;
    const [gap, y] = [to - from > 4 ? 1 : 0, chart.valueY(value)];
    pen.fillRect(from + gap / 2, Math.min(y, zeroY), Math.max(to - from - gap, 0.6), Math.abs(zeroY - y));
    if (layer.labels[cell] && to - from > 14) {
      pen.save();
      pen.fillStyle = chart.colours.muted;
      pen.textAlign = 'center';
      pen.fillText(shortenEnd(pen, layer.labels[cell], to - from - 2), (from + to) / 2, Math.max(Math.min(y, zeroY) - 7 * chart.scale, 7 * chart.scale));
      pen.restore();
    }
  }
};

const marks = (chart, pen, layer) => {
  pen.fillStyle = chart.layer.kind === 'image' ? '#ffffff' : LINES[1];
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  let labelEnd = -Infinity;
  for (let index = 0; index < layer.values.codes.length; index += 1) {
    const markX = chart.valueX(layer.x, layer.values.at(index));
    if (chart.layer.kind === 'image') {
      pen.globalAlpha = 0.85;
      pen.fillRect(markX - 0.5, 0, 1, chart.height);
      pen.globalAlpha = 1;
    } else pen.fillRect(markX - 0.75, 0, 1.5, chart.height);
    const label = layer.labels[index];
    if (!label || markX < labelEnd || markX > chart.left + chart.width) continue;
    const text = shortenEnd(pen, label, 90 * chart.scale);
    const width = pen.measureText(text).width;
    pen.save();
    if (chart.layer.kind === 'image') {
      pen.fillStyle = 'rgb(0 0 0 / 55%)';
      pen.fillRect(markX + 1, 1, width + 6, 14 * chart.scale);
      pen.fillStyle = '#ffffff';
    } else pen.fillStyle = chart.colours.ink;
    pen.fillText(text, markX + 4, 8 * chart.scale);
    pen.restore();
    labelEnd = markX + width + 8;
  }
};

const spans = (chart, pen, layer) => {
  const isOverlay = layer !== chart.layer;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  const height = isOverlay ? 18 * chart.scale : chart.height - 4;
  for (let index = 0; index < layer.values.shape[0]; index += 1) {
    const [from, to] = [chart.valueX(layer.x, layer.values.at(2 * index)), chart.valueX(layer.x, layer.values.at(2 * index + 1))];
    if (to < chart.left || from > chart.left + chart.width) continue;
    const width = Math.max(to - from - 1, 1);
    pen.globalAlpha = isOverlay ? 0.75 : 1;
    const isNarrow = width <= 3; // without room for a frame around it
    pen.fillStyle = isNarrow ? chart.colours.accent : isOverlay ? chart.colours.surface : themed(chart.root, '--accent-soft');
    pen.fillRect(from + 0.5, 2, width, height);
    pen.globalAlpha = 1;
    if (!isNarrow) {
      pen.strokeStyle = chart.colours.accent;
      pen.lineWidth = 0.8;
      pen.strokeRect(from + 0.5, 2, width, height);
    }
    const [left, right] = [Math.max(from, chart.left), Math.min(to, chart.left + chart.width)];
    const label = layer.labels[index] || '';
    const nextLeft = index + 1 < layer.values.shape[0] ? chart.valueX(layer.x, layer.values.at(2 * index + 2)) : chart.left + chart.width;
    pen.fillStyle = chart.colours.ink;
    // A label that is too wide for its span is drawn to the right of it, if the gap to the next span has room.
    if (pen.measureText(label).width > right - left - 4 && nextLeft - right > right - left) {
      pen.textAlign = 'left';
      if (nextLeft - right > 12) pen.fillText(shortenEnd(pen, label, nextLeft - right - 6), right + 3, 2 + height / 2);
      pen.textAlign = 'center';
    } else if (right - left > 9) pen.fillText(shortenEnd(pen, label, right - left - 4), (left + right) / 2, 2 + height / 2);
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

// Returns the position [x, y] of each point.
const pointPositions = (chart, layer) => {
  if (layer.positionCache?.width === chart.width) return layer.positionCache.positions;
  const {values} = layer;
  const ranges = [[Infinity, -Infinity], [Infinity, -Infinity]];
  for (const {values: {codes}} of chart.layers.filter((each) => each.kind === 'points')) {
    codes.forEach((value, index) => {
      const range = ranges[index % 2];
      if (Number.isFinite(value)) { range[0] = Math.min(range[0], value); range[1] = Math.max(range[1], value); }
    });
  }
  const scaleShare = (value, [low, high]) => (high > low ? 0.06 + 0.88 * (value - low) / (high - low) : 0.5);
  const positions = Array.from({length: values.shape[0]}, (_, index) => [
    chart.left + scaleShare(values.at(2 * index), ranges[0]) * chart.width, (1 - scaleShare(values.at(2 * index + 1), ranges[1])) * chart.height]);
  layer.positionCache = {width: chart.width, positions};
  return positions;
};

// Draws points over another layer, on the axes of that layer.
const path = (chart, pen, layer) => {
  const size = Math.min(Math.max(Math.abs(chart.cellY(0) - chart.cellY(1)) / 3, 1.5), 4);
  for (let index = 0; index < layer.values.shape[0]; index += 1) {
    const [x, y] = [chart.valueX(layer.x, layer.values.at(2 * index)), chart.valueY(layer.values.at(2 * index + 1))];
    if (x < chart.left - size || x > chart.left + chart.width + size) continue;
    pen.beginPath();
    pen.arc(x, y, size, 0, 7);
    pen.fillStyle = LINES[1];
    pen.fill();
    pen.lineWidth = 0.7;
    pen.strokeStyle = chart.colours.surface;
    pen.stroke();
  }
};

const points = (chart, pen, layer) => {
  if (chart.layer.kind !== 'points') { path(chart, pen, layer); return; }
  const isBackground = layer !== chart.layers.findLast((each) => each.kind === 'points'); // other points are drawn over it
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  const labelBoxes = [];
  pointPositions(chart, layer).forEach(([x, y], index) => {
    pen.fillStyle = isBackground ? themed(chart.root, '--wave') : LINES[0];
    pen.globalAlpha = isBackground ? 0.5 : 0.85;
    pen.beginPath();
    pen.arc(x, y, isBackground ? 2.5 : 4, 0, 7);
    pen.fill();
    pen.globalAlpha = 1;
    const label = shortenEnd(pen, layer.labels[index] || '', 90 * chart.scale);
    const width = pen.measureText(label).width;
    const left = x + 9 + width > chart.left + chart.width ? x - 7 - width : x + 7; // at the right edge, the label is left of its point
    const box = [left, y - 7 * chart.scale, left + 2 + width, y + 7 * chart.scale];
    if (!label || labelBoxes.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return;
    labelBoxes.push(box);
    pen.fillStyle = chart.colours.ink;
    pen.fillText(label, left, y);
  });
};

const nearestPoint = (chart, layer, point) => {
  let [nearestIndex, nearestDistance] = [-1, 20 ** 2];
  pointPositions(chart, layer).forEach(([x, y], index) => {
    const distance = (x - point[0]) ** 2 + (y - point[1]) ** 2;
    if (distance < nearestDistance) { nearestIndex = index; nearestDistance = distance; }
  });
  return nearestIndex;
};

// Draws a ring around the point under the pointer.
const ring = (chart, pen, hover) => {
  for (const layer of chart.layers.filter((each) => each.kind === 'points' && each.labels.length)) {
    const index = hover.point ? nearestPoint(chart, layer, hover.point) : -1;
    if (index < 0) continue;
    const [x, y] = pointPositions(chart, layer)[index];
    pen.strokeStyle = chart.colours.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 7, 0, 7);
    pen.stroke();
  }
};

// Returns a text about the cell under the pointer, else about a time; empty where the layer has no value there.
const describeCell = (chart, layer, hover, time) => {
  const {values, x, y, labels} = layer;
  if (layer.kind === 'points') {
    const index = chart.layer.kind === 'points' && hover?.point ? nearestPoint(chart, layer, hover.point) : -1;
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
  const column = hover ? hover.x : time === null ? -1 : x.at(time);
  if (column < 0) return '';
  if (layer.kind === 'image') {
    if (!hover || hover.y < 0) return '';
    return `${x.name(column)} · ${y.name(hover.y)} · ${layer.scale ? `${layer.scale.name} ` : ''}${number(values.at(hover.y * x.count + column))}`;
  }
  const count = (layer.kind === 'lines' || layer.kind === 'band') && values.shape.length > 1 ? values.shape[0] : 1;
  const points = values.shape.at(-1);
  const texts = Array.from({length: Math.min(count, 4)}, (_, line) =>
    `${count > 1 && labels[line] ? `${labels[line]} ` : ''}${number(values.at(line * points + column))}`).join(', ');
  return `${hover ? `${x.name(column)} · ` : ''}${texts}${count > 4 ? ', …' : ''}`;
};

// Draws the waveform: the minimum and maximum of the samples in each pixel column.
const wave = (chart, pen, layer) => {
  const {samples, rate} = layer;
  const samplesPerPixel = (chart.link.to - chart.link.from) * rate / chart.width;
  const centre = chart.height / 2;
  layer.peak ||= samples.reduce((peak, value) => Math.max(peak, Math.abs(value)), 600);
  pen.fillStyle = themed(chart.root, '--wave');
  for (let x = 0; x < chart.width; x += 1) {
    const begin = Math.floor(chart.link.from * rate + x * samplesPerPixel);
    const end = Math.min(Math.max(Math.floor(begin + samplesPerPixel), begin + 1), samples.length);
    let [low, high] = [0, 0];
    for (let index = begin; index < end; index += 1) {
      if (samples[index] < low) low = samples[index];
      else if (samples[index] > high) high = samples[index];
    }
    pen.fillRect(chart.left + x, centre - high / layer.peak * centre, 1, Math.max((high - low) / layer.peak * centre, 1));
  }
};

export const painters = {image, lines, band, bars, marks, spans, points, wave, describeCell, colour, ring};
