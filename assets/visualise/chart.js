// A chart: one layer of a picture and the layers over it. The arrays are drawn on one canvas when the view changes;
// cursor, selection and pointer are drawn on a second, transparent canvas.
import {make} from '../../chat/scripts/dom.js';
import {gradient, isDark, colourTable, themed} from './colours.js';
import {painters} from './kinds.js';
import {number} from './parcel.js';
import {shortenStart, fitCanvas, textScale, ticks, tiles} from './paint.js';
import {listenToPointer} from './pointing.js';

const HEIGHTS = {wave: 44, lines: 120, band: 120, bars: 130, marks: 26, spans: 26, points: 380};
const OF_TEXT = ['marks', 'spans']; // kinds that are as high as their text
const MAX_GUTTER = 0.28; // of the width, for names in large text

const RIGHT = 6;

const describeChart = (side, layer) => {
  const axis = (each) => (each.time ? 'time' : each.label);
  const range = layer.scale ? `, ${layer.scale.name} from ${number(layer.scale.low)} to ${number(layer.scale.high)}` : '';
  return `${layer.title}, ${side.title}: ${layer.kind}, ${axis(layer.x)} along${layer.y.label ? `, ${layer.y.label} up` : ''}${range}`;
};

export class Chart {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layers, layer: layers[0], tileCache: null});
    this.readout = make('output', {class: 'value', 'aria-live': 'off'});
    this.canvas = make('canvas', {role: 'img', 'aria-label': describeChart(side, this.layer)});
    this.overlay = make('canvas', {class: 'above', 'aria-hidden': 'true'});
    this.plot = make('div', {class: 'plot'}, this.canvas, this.overlay);
    this.legendBox = make('span', {class: 'key'});
    this.root = make('figure', {class: `chart ${this.layer.kind}`, 'data-layer': this.layer.name, 'data-side': side.title},
      make('figcaption', {}, make('span', {class: 'name'}, name ?? this.layer.title), this.legendBox, this.readout), this.plot);
    listenToPointer(this);
  }

  get isTimed() { return Boolean(this.layer.x.time); }

  // Sizes and positions.

  measure() {
    this.scale = textScale();
    this.left = Math.min((innerWidth < 760 ? 52 : 58) * this.scale, Math.max(58, MAX_GUTTER * this.plot.clientWidth));
    this.width = Math.max(this.plot.clientWidth - this.left - RIGHT, 40);
    const {layer} = this;
    const rows = layer.y.count;
    const rowHeight = 18 * this.scale; // of a row with a name
    let height = HEIGHTS[layer.kind] * (OF_TEXT.includes(layer.kind) ? this.scale : 1);
    if (layer.kind === 'image') {
      const isSquare = Boolean(layer.y.time) || layer.head !== undefined;
      height = isSquare ? Math.min(this.width, 460) : Math.min(Math.max(rows * (layer.y.ticks ? rowHeight : 2), 96), layer.y.ticks ? 420 * this.scale : 200);
    }
    if (layer.kind === 'image' && !this.isTimed && layer.x.unit === layer.y.unit && layer.x.count === layer.y.count) {
      this.width = Math.min(this.width, Math.max(260, Math.min(44 * layer.x.count, 520)));
      height = this.width;
    }
    if (layer.kind === 'points') height = Math.min(height, this.width);
    this.height = height;
    const isWithoutAxis = this.isTimed || layer.kind === 'marks' || layer.kind === 'spans';
    this.axisHeight = isWithoutAxis && layer.kind !== 'wave' ? 0 : 18 * this.scale;
  }

  timeX(seconds) { return this.left + (seconds - this.link.from) / (this.link.to - this.link.from) * this.width; }

  // Returns the x of the left edge of a cell: cells with times follow the range in view, others fill the width.
  cellX(axis, cell) {
    if (axis.time) return this.timeX(axis.time[0] + cell * axis.time[1]);
    return this.left + cell / this.layer.x.count * this.width;
  }

  // Returns the x of a value on the horizontal axis.
  valueX(axis, value) {
    if (axis.time) return this.timeX(value);
    const mainAxis = this.layer.x;
    return this.left + (value - mainAxis.start) / mainAxis.step / mainAxis.count * this.width;
  }

  // The range of rows in view: the first, and one more than the last.
  get rows() {
    const {y} = this.layer;
    if (!y.time) return [0, y.count];
    return [(this.link.from - y.time[0]) / y.time[1], (this.link.to - y.time[0]) / y.time[1]];
  }

  cellY(row) {
    const [first, last] = this.rows;
    const share = (row - first) / (last - first);
    return (this.layer.y.up ? 1 - share : share) * this.height;
  }

  // Returns the y of a value of lines and bars.
  valueY(value) {
    if (this.layer.kind === 'image') return this.cellY((value - this.layer.y.start) / this.layer.y.step);
    return this.height - 4 - (value - this.low) / (this.high - this.low || 1) * (this.height - 8);
  }

  // Drawing.

  draw() {
    if (!this.root.isConnected || !this.plot.clientWidth) return;
    this.measure();
    const pen = fitCanvas(this.canvas, this.plot.clientWidth, this.height + this.axisHeight);
    this.colours = {ink: themed(this.root, '--ink'), muted: themed(this.root, '--muted'), line: themed(this.root, '--line'),
      accent: themed(this.root, '--accent'), surface: themed(this.root, '--surface'), dark: isDark(this.root)};
    pen.font = `${11 * this.scale}px ${getComputedStyle(this.root).fontFamily}`;
    this.range();
    this.axes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width, this.height);
    pen.clip();
    for (const layer of this.layers) painters[layer.kind](this, pen, layer);
    pen.restore();
    this.drawLegend();
    this.drawOverlay();
  }

  // Finds the lowest and the highest value of lines and bars in all layers of this chart.
  range() {
    const rangedLayers = this.layers.filter((layer) => ['lines', 'band', 'bars'].includes(layer.kind));
    if (this.low !== undefined || !rangedLayers.length) return;
    let [low, high] = [Infinity, -Infinity];
    for (const {values, scale, kind} of rangedLayers) {
      for (const each of values.codes) if (Number.isFinite(each)) { low = Math.min(low, each); high = Math.max(high, each); }
      if (scale) { low = Math.min(low, scale.low); high = Math.max(high, scale.high); }
      if (kind === 'bars') low = Math.min(low, 0);
    }
    if (!(high > low)) [low, high] = [Number.isFinite(low) ? low - 0.5 : 0, Number.isFinite(low) ? low + 0.5 : 1];
    Object.assign(this, {low, high});
  }

  // Returns the canvases of an image; they are painted again only when the colours change.
  paintTiles(layer) {
    const paintKey = `${this.colours.dark} ${this.link.lift}`;
    if (this.tileCache?.paintKey !== paintKey) {
      const {values, scale, y, x} = layer;
      this.tileCache = {paintKey, parts: tiles(values.codes, colourTable(values, scale, this.colours.dark, this.link.lift), y.count, x.count, y.up)};
    }
    return this.tileCache.parts;
  }

  axes(pen) {
    const {layer, left, height, colours} = this;
    pen.fillStyle = colours.muted;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    const labelWidth = left - 8;
    if (layer.kind === 'image') {
      const [first, last] = this.rows;
      if (layer.y.ticks) this.drawRowNames(pen, layer.y, labelWidth);
      else if (layer.y.time) {
        for (const time of ticks(this.link.from, this.link.to, this.tickCount(height, 60))) pen.fillText(`${number(time)} s`, left - 6, this.edge(this.cellY((time - layer.y.time[0]) / layer.y.time[1])));
      } else {
        const {start, step} = layer.y;
        for (const value of ticks(start + first * step, start + last * step, this.tickCount(height, 40))) {
          pen.fillText(number(value), left - 6, this.edge(this.cellY((value - start) / step + (layer.y.unit === 'value' ? 0 : 0.5))));
        }
      }
    } else if (this.low !== undefined) {
      for (const value of ticks(this.low, this.high, this.tickCount(height, 40))) {
        const y = this.valueY(value);
        pen.fillText(number(value), left - 6, this.edge(y));
        pen.fillStyle = colours.line;
        pen.fillRect(left, Math.round(y), this.width, 1);
        pen.fillStyle = colours.muted;
      }
    }
    if (this.axisHeight && layer.kind !== 'points') this.drawHorizontalAxis(pen);
  }

  // Returns how many ticks fit into a length, if each needs so many pixels in text of the usual size.
  tickCount(length, pixels) { return Math.max(length / pixels / this.scale, Math.min(length / pixels, 2)); }

  edge(y) { return Math.min(Math.max(y, 6 * this.scale), this.height - 6 * this.scale); }

  drawRowNames(pen, axis, labelWidth) {
    const rowHeight = Math.abs(this.cellY(1) - this.cellY(0));
    const step = Math.max(1, Math.ceil(12 * this.scale / rowHeight));
    for (let row = 0; row < axis.count; row += step) {
      pen.fillText(shortenStart(pen, axis.ticks[row] ?? '', labelWidth), this.left - 6, this.edge(this.cellY(row + 0.5)));
    }
  }

  // Draws the names of cells under a chart without a time axis, and the times under the waveform.
  drawHorizontalAxis(pen) {
    const {x} = this.layer;
    const textY = this.height + 11 * this.scale;
    pen.textAlign = 'center';
    if (x.time) {
      for (const time of ticks(this.link.from, this.link.to, this.tickCount(this.width, 70))) {
        pen.fillRect(this.timeX(time) - 0.5, this.height, 1, 4);
        pen.fillText(`${Number(time.toFixed(6))} s`, Math.min(Math.max(this.timeX(time), this.left + 8 * this.scale), this.left + this.width - 10 * this.scale), textY);
      }
      return;
    }
    const labelWidth = x.ticks ? Math.max(...x.ticks.map((each) => Math.min(pen.measureText(each).width, 70 * this.scale)), 12) + 8 : 34 * this.scale;
    const step = Math.max(1, Math.ceil(labelWidth / (this.width / x.count)));
    const rightEdge = this.left + this.width + RIGHT;
    let labelEnd = 0; // x where the previous name ends; the right edge must not cut the last name off
    for (let cell = 0; cell < x.count; cell += step) {
      const label = x.ticks ? shortenStart(pen, x.ticks[cell] ?? '', Math.min(labelWidth, rightEdge - labelEnd - 8)) : x.number(cell);
      const halfWidth = pen.measureText(label).width / 2;
      const middle = Math.min(this.cellX(x, cell + 0.5), rightEdge - halfWidth);
      pen.fillText(label, middle, textY);
      labelEnd = middle + halfWidth;
    }
  }

  // Shows the colours of an image and the names of lines; again only when the colours change.
  drawLegend() {
    const legendKey = `${this.colours.dark} ${this.link.lift}`;
    if (this.legendKey === legendKey) return;
    this.legendKey = legendKey;
    const entries = [];
    if (this.layer.kind === 'image' && this.layer.scale) {
      const {scale} = this.layer;
      entries.push(make('span', {class: 'scale'}, `${scale.name} ${number(scale.low)}`,
        make('i', {style: `background: ${gradient(scale, this.colours.dark, this.link.lift)}`}), number(scale.high)));
    }
    for (const layer of this.layers) {
      if (layer.kind !== 'lines' || layer.labels.length > 8) continue;
      layer.labels.forEach((label, index) => {
        if (label) entries.push(make('span', {class: 'line'}, make('i', {style: `background: ${painters.colour(this, layer, index)}`}), label));
      });
    }
    const axisNames = [this.isTimed || this.layer.kind === 'spans' || this.layer.kind === 'marks' ? '' : this.layer.x.label, this.layer.y.label];
    const axisText = axisNames.filter(Boolean).join(' × ');
    this.legendBox.replaceChildren(...(axisText ? [make('span', {class: 'axes'}, axisText)] : []), ...entries);
  }

  // The overlay: selection, token, pointer, cursor.

  drawOverlay() {
    if (!this.colours || !this.root.isConnected) return;
    const {link, layer, left, width, height, colours} = this;
    const pen = fitCanvas(this.overlay, this.plot.clientWidth, height + this.axisHeight);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width, height);
    pen.clip();
    const columnRanges = (from, to) => {
      if (this.isTimed) return [[this.timeX(from), this.timeX(to)]];
      if (!layer.x.spans) return [];
      return layer.x.spans.flatMap((span, cell) => (span && span[1] > from && span[0] < to ? [[this.cellX(layer.x, cell), this.cellX(layer.x, cell + 1)]] : []));
    };
    const rowRanges = (from, to) => {
      if (layer.kind !== 'image') return [];
      if (layer.y.time) return [[(from - layer.y.time[0]) / layer.y.time[1], (to - layer.y.time[0]) / layer.y.time[1]]];
      return (layer.y.spans || []).flatMap((span, row) => (span && span[1] > from && span[0] < to ? [[row, row + 1]] : []));
    };
    if (link.stretch) {
      pen.fillStyle = colours.accent;
      for (const [from, to] of columnRanges(...link.stretch)) {
        pen.globalAlpha = 0.16;
        pen.fillRect(from, 0, to - from, height);
        pen.globalAlpha = 0.9;
        pen.fillRect(from, 0, 1, height);
        pen.fillRect(to - 1, 0, 1, height);
      }
      pen.globalAlpha = 0.12;
      for (const [from, to] of rowRanges(...link.stretch)) pen.fillRect(left, Math.min(this.cellY(from), this.cellY(to)), width, Math.abs(this.cellY(to) - this.cellY(from)));
      pen.globalAlpha = 1;
    }
    this.drawToken(pen);
    const {hover} = link;
    if (hover) this.drawPointer(pen, hover);
    pen.fillStyle = colours.dark ? '#ffb86b' : '#c2541a';
    for (const [from, to] of columnRanges(link.cursor, link.cursor + 1e-6)) {
      if (this.isTimed) pen.fillRect(from - 0.75, 0, 1.5, height);
      else { pen.globalAlpha = 0.3; pen.fillRect(from, 0, to - from, height); pen.globalAlpha = 1; }
    }
    for (const [from] of rowRanges(link.cursor, link.cursor + 1e-6)) {
      if (layer.y.time) pen.fillRect(left, this.cellY(from) - 0.75, width, 1.5);
    }
    pen.restore();
    this.showReadout();
  }

  // Draws a frame around the row or column of the chosen token, and an arrow to the cell of its greatest attention.
  drawToken(pen) {
    const {link, layer, left, width, colours} = this;
    const {token} = link;
    if (layer.kind !== 'image' || !token || token.side !== this.side.title) return;
    pen.strokeStyle = colours.dark ? '#ffb86b' : '#c2541a';
    pen.lineWidth = 1.5;
    const [column, row] = [layer.x, layer.y].map((axis) => axis.tokens?.indexOf(token.index) ?? -1);
    if (column >= 0) {
      pen.strokeRect(this.cellX(layer.x, column), 0.75, this.cellX(layer.x, column + 1) - this.cellX(layer.x, column), this.height - 1.5);
    }
    if (row < 0) return;
    const [top, bottom] = [this.cellY(row), this.cellY(row + 1)].sort((one, other) => one - other);
    pen.strokeRect(left + 0.75, top, width - 1.5, bottom - top);
    const peak = this.peakOf(row);
    if (peak < 0) return;
    const [x, y] = [this.cellX(layer.x, peak + 0.5), (top + bottom) / 2];
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(x - 8, y);
    pen.moveTo(x - 14, y - 5);
    pen.lineTo(x - 7, y);
    pen.lineTo(x - 14, y + 5);
    pen.stroke();
    pen.beginPath();
    pen.arc(x, y, 6, 0, 7);
    pen.stroke();
  }

  // Returns the cell of a row that has the greatest value, or -1.
  peakOf(row) {
    const {values, x} = this.layer;
    let [peakCell, peakValue] = [-1, -Infinity];
    for (let cell = 0; cell < x.count; cell += 1) {
      const value = values.at(row * x.count + cell);
      if (value > peakValue) { peakCell = cell; peakValue = value; }
    }
    return peakCell;
  }

  drawPointer(pen, hover) {
    const {layer, left, width, colours} = this;
    if (layer.kind === 'points') {
      if (this.isPointedAt(hover)) painters.ring(this, pen, hover);
      return;
    }
    pen.fillStyle = colours.ink;
    pen.globalAlpha = 0.55;
    if (this.isTimed && hover.time !== null) pen.fillRect(this.timeX(hover.time) - 0.5, 0, 1, this.height);
    else if (this.isPointedAt(hover) && hover.x >= 0) pen.fillRect(this.cellX(layer.x, hover.x + 0.5) - 0.5, 0, 1, this.height);
    if (layer.kind === 'image' && this.isPointedAt(hover) && hover.y >= 0) pen.fillRect(left, this.cellY(hover.y + 0.5) - 0.5, width, 1);
    pen.globalAlpha = 1;
  }

  // Whether the pointer, in this chart or in the same layer of another side, is at a cell of this chart.
  isPointedAt(hover) { return hover.layer === this.layer.name && hover.head === this.layer.head; }

  showReadout() {
    const text = this.readoutText();
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  // Returns the values under the pointer, else at the cursor, with the names of their cells.
  readoutText() {
    const {link} = this;
    const hover = link.hover && this.isPointedAt(link.hover) ? link.hover : null;
    const time = link.hover ? link.hover.time : link.cursor;
    return this.layers.map((layer, index) => painters.describeCell(this, layer, index && layer.kind !== 'points' ? null : hover, time)).filter(Boolean).join(' · ');
  }

  // The pointer.

  // Returns what is under the pointer: time in seconds, column x and row y (-1 for none), point in pixels.
  locate(event) {
    const rect = this.plot.getBoundingClientRect();
    const widthShare = Math.min(Math.max((event.clientX - rect.left - this.left) / this.width, 0), 1);
    const {layer, link} = this;
    let [time, x] = [null, -1];
    if (this.isTimed) {
      time = link.from + widthShare * (link.to - link.from);
      x = layer.x.at(time);
    } else {
      x = Math.min(Math.floor(widthShare * layer.x.count), layer.x.count - 1);
      const span = layer.x.span(x);
      if (span) time = (span[0] + span[1]) / 2;
    }
    const [first, last] = this.rows;
    const heightShare = (event.clientY - rect.top) / this.height;
    const row = Math.floor(first + (layer.y.up ? 1 - heightShare : heightShare) * (last - first));
    return {layer: layer.name, head: layer.head, time, x, y: row >= 0 && row < layer.y.count ? row : -1,
      point: [event.clientX - rect.left, event.clientY - rect.top]};
  }

  // Handles a press without a drag: it moves the cursor, and chooses the token of the row under the pointer.
  press(target) {
    const {link, layer} = this;
    link.set({stretch: null});
    if (target.time !== null) link.go(target.time);
    if (layer.kind === 'image' && (layer.y.tokens?.[target.y] ?? null) !== null) {
      link.set({token: {side: this.side.title, index: layer.y.tokens[target.y]}});
    } else if (layer.kind === 'spans' && layer.ofTokens) {
      const index = this.side.tokens.findIndex((each) => each.start !== null && target.time >= each.start && target.time < each.end);
      if (index >= 0) this.side.choose(index);
    }
  }
}
