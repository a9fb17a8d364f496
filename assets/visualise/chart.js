// A chart: one layer of a picture and what is drawn over it. The array is drawn on one canvas when the view changes;
// cursor, selection and what is pointed at are drawn on a second, light one.
import {make} from '../../chat/scripts/dom.js';
import {gradient, isDark, table, themed} from './colours.js';
import {draws} from './kinds.js';
import {number} from './parcel.js';
import {ending, fitted, ticks, tiles} from './paint.js';
import {listen} from './pointing.js';

const HEIGHTS = {wave: 44, lines: 120, band: 120, bars: 130, marks: 26, spans: 26, points: 380};

export const gutter = () => (innerWidth < 760 ? 52 : 58);
const RIGHT = 6;

const described = (side, layer) => {
  const axis = (each) => (each.time ? 'time' : each.label);
  const ends = layer.scale ? `, ${layer.scale.name} from ${number(layer.scale.low)} to ${number(layer.scale.high)}` : '';
  return `${layer.title}, ${side.title}: ${layer.kind}, ${axis(layer.x)} along${layer.y.label ? `, ${layer.y.label} up` : ''}${ends}`;
};

export class Chart {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layers, layer: layers[0], pieces: null});
    this.readout = make('output', {class: 'value', 'aria-live': 'off'});
    this.under = make('canvas', {role: 'img', 'aria-label': described(side, this.layer)});
    this.above = make('canvas', {class: 'above', 'aria-hidden': 'true'});
    this.plot = make('div', {class: 'plot'}, this.under, this.above);
    this.key = make('span', {class: 'key'});
    this.root = make('figure', {class: `chart ${this.layer.kind}`, 'data-layer': this.layer.name, 'data-side': side.title},
      make('figcaption', {}, make('span', {class: 'name'}, name ?? this.layer.title), this.key, this.readout), this.plot);
    listen(this);
  }

  get timed() { return Boolean(this.layer.x.time); }

  // Sizes and places.

  measure() {
    this.left = gutter();
    this.width = Math.max(this.plot.clientWidth - this.left - RIGHT, 40);
    const {layer} = this;
    const rows = layer.y.count;
    let height = HEIGHTS[layer.kind];
    if (layer.kind === 'image') {
      const square = Boolean(layer.y.time) || layer.head !== undefined;
      height = square ? Math.min(this.width, 460) : Math.min(Math.max(rows * (layer.y.ticks ? 18 : 2), 96), layer.y.ticks ? 420 : 200);
    }
    if (layer.kind === 'image' && !this.timed && layer.x.unit === layer.y.unit && layer.x.count === layer.y.count) {
      this.width = Math.min(this.width, Math.max(260, Math.min(44 * layer.x.count, 520)));
      height = this.width;
    }
    if (layer.kind === 'points') height = Math.min(height, this.width);
    this.height = height;
    const flat = this.timed || layer.kind === 'marks' || layer.kind === 'spans';
    this.bottom = flat && layer.kind !== 'wave' ? 0 : 18;
  }

  timeX(seconds) { return this.left + (seconds - this.link.from) / (this.link.to - this.link.from) * this.width; }

  // The place of a cell's beginning; cells in seconds stand where the view has them, others fill the width.
  cellX(axis, cell) {
    if (axis.time) return this.timeX(axis.time[0] + cell * axis.time[1]);
    return this.left + cell / this.layer.x.count * this.width;
  }

  // The place of a number on the horizontal axis.
  placeX(axis, value) {
    if (axis.time) return this.timeX(value);
    const whole = this.layer.x;
    return this.left + (value - whole.start) / whole.step / whole.count * this.width;
  }

  // The first row and the one behind the last that are in view.
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

  // The place of a value of lines and bars.
  valueY(value) {
    if (this.layer.kind === 'image') return this.cellY((value - this.layer.y.start) / this.layer.y.step);
    return this.height - 4 - (value - this.low) / (this.high - this.low || 1) * (this.height - 8);
  }

  // Drawing.

  draw() {
    if (!this.root.isConnected || !this.plot.clientWidth) return;
    this.measure();
    const pen = fitted(this.under, this.plot.clientWidth, this.height + this.bottom);
    this.drawn = {ink: themed(this.root, '--ink'), muted: themed(this.root, '--muted'), line: themed(this.root, '--line'),
      accent: themed(this.root, '--accent'), surface: themed(this.root, '--surface'), dark: isDark(this.root)};
    pen.font = `11px ${getComputedStyle(this.root).fontFamily}`;
    this.range();
    this.axes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width, this.height);
    pen.clip();
    for (const layer of this.layers) draws[layer.kind](this, pen, layer);
    pen.restore();
    this.legend();
    this.drawAbove();
  }

  // The numbers at the bottom and the top of lines and bars, of all layers on these axes.
  range() {
    const drawn = this.layers.filter((layer) => ['lines', 'band', 'bars'].includes(layer.kind));
    if (this.low !== undefined || !drawn.length) return;
    let [low, high] = [Infinity, -Infinity];
    for (const {values, scale, kind} of drawn) {
      for (const each of values.codes) if (Number.isFinite(each)) { low = Math.min(low, each); high = Math.max(high, each); }
      if (scale) { low = Math.min(low, scale.low); high = Math.max(high, scale.high); }
      if (kind === 'bars') low = Math.min(low, 0);
    }
    if (!(high > low)) [low, high] = [Number.isFinite(low) ? low - 0.5 : 0, Number.isFinite(low) ? low + 0.5 : 1];
    Object.assign(this, {low, high});
  }

  // The canvases of an image, painted once for its colours.
  painted(layer) {
    const look = `${this.drawn.dark} ${this.link.lift}`;
    if (this.pieces?.look !== look) {
      const {values, scale, y, x} = layer;
      this.pieces = {look, parts: tiles(values.codes, table(values, scale, this.drawn.dark, this.link.lift), y.count, x.count, y.up)};
    }
    return this.pieces.parts;
  }

  axes(pen) {
    const {layer, left, height, drawn} = this;
    pen.fillStyle = drawn.muted;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    const room = left - 8;
    if (layer.kind === 'image') {
      const [first, last] = this.rows;
      if (layer.y.ticks) this.words(pen, layer.y, room);
      else if (layer.y.time) {
        for (const at of ticks(this.link.from, this.link.to, height / 60)) pen.fillText(`${number(at)} s`, left - 6, this.edge(this.cellY((at - layer.y.time[0]) / layer.y.time[1])));
      } else {
        const {start, step} = layer.y;
        for (const at of ticks(start + first * step, start + last * step, height / 40)) {
          pen.fillText(number(at), left - 6, this.edge(this.cellY((at - start) / step + (layer.y.unit === 'value' ? 0 : 0.5))));
        }
      }
    } else if (this.low !== undefined) {
      for (const at of ticks(this.low, this.high, height / 40)) {
        const y = this.valueY(at);
        pen.fillText(number(at), left - 6, this.edge(y));
        pen.fillStyle = drawn.line;
        pen.fillRect(left, Math.round(y), this.width, 1);
        pen.fillStyle = drawn.muted;
      }
    }
    if (this.bottom && layer.kind !== 'points') this.below(pen);
  }

  edge(y) { return Math.min(Math.max(y, 6), this.height - 6); }

  words(pen, axis, room) {
    const each = Math.abs(this.cellY(1) - this.cellY(0));
    const every = Math.max(1, Math.ceil(12 / each));
    for (let row = 0; row < axis.count; row += every) {
      pen.fillText(ending(pen, axis.ticks[row] ?? '', room), this.left - 6, this.edge(this.cellY(row + 0.5)));
    }
  }

  // Names of cells under a chart whose horizontal axis is no time, and the times under the recording.
  below(pen) {
    const {x} = this.layer;
    pen.textAlign = 'center';
    if (x.time) {
      for (const at of ticks(this.link.from, this.link.to, this.width / 70)) {
        pen.fillRect(this.timeX(at) - 0.5, this.height, 1, 4);
        pen.fillText(`${Number(at.toFixed(6))} s`, Math.min(Math.max(this.timeX(at), this.left + 8), this.left + this.width - 10), this.height + 11);
      }
      return;
    }
    const widest = x.ticks ? Math.max(...x.ticks.map((each) => Math.min(pen.measureText(each).width, 70)), 12) + 8 : 34;
    const every = Math.max(1, Math.ceil(widest / (this.width / x.count)));
    const edge = this.left + this.width + RIGHT;
    let taken = 0; // by the name before; the last one must not be cut off at the edge
    for (let cell = 0; cell < x.count; cell += every) {
      const said = x.ticks ? ending(pen, x.ticks[cell] ?? '', Math.min(widest, edge - taken - 8)) : x.number(cell);
      const half = pen.measureText(said).width / 2;
      const middle = Math.min(this.cellX(x, cell + 0.5), edge - half);
      pen.fillText(said, middle, this.height + 11);
      taken = middle + half;
    }
  }

  // The colours of an image or the names of lines, once per look.
  legend() {
    const look = `${this.drawn.dark} ${this.link.lift}`;
    if (this.legended === look) return;
    this.legended = look;
    const shown = [];
    if (this.layer.kind === 'image' && this.layer.scale) {
      const {scale} = this.layer;
      shown.push(make('span', {class: 'scale'}, `${scale.name} ${number(scale.low)}`,
        make('i', {style: `background: ${gradient(scale, this.drawn.dark, this.link.lift)}`}), number(scale.high)));
    }
    for (const layer of this.layers) {
      if (layer.kind !== 'lines' || layer.labels.length > 8) continue;
      layer.labels.forEach((label, index) => {
        if (label) shown.push(make('span', {class: 'line'}, make('i', {style: `background: ${draws.colour(this, layer, index)}`}), label));
      });
    }
    const unit = [this.timed || this.layer.kind === 'spans' || this.layer.kind === 'marks' ? '' : this.layer.x.label, this.layer.y.label];
    const named = unit.filter(Boolean).join(' × ');
    this.key.replaceChildren(...(named ? [make('span', {class: 'axes'}, named)] : []), ...shown);
  }

  // What lies above: selection, token, pointer, cursor.

  drawAbove() {
    if (!this.drawn || !this.root.isConnected) return;
    const {link, layer, left, width, height, drawn} = this;
    const pen = fitted(this.above, this.plot.clientWidth, height + this.bottom);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width, height);
    pen.clip();
    const columns = (from, to) => {
      if (this.timed) return [[this.timeX(from), this.timeX(to)]];
      if (!layer.x.spans) return [];
      return layer.x.spans.flatMap((span, cell) => (span && span[1] > from && span[0] < to ? [[this.cellX(layer.x, cell), this.cellX(layer.x, cell + 1)]] : []));
    };
    const lines = (from, to) => {
      if (layer.kind !== 'image') return [];
      if (layer.y.time) return [[(from - layer.y.time[0]) / layer.y.time[1], (to - layer.y.time[0]) / layer.y.time[1]]];
      return (layer.y.spans || []).flatMap((span, row) => (span && span[1] > from && span[0] < to ? [[row, row + 1]] : []));
    };
    if (link.stretch) {
      pen.fillStyle = drawn.accent;
      for (const [from, to] of columns(...link.stretch)) {
        pen.globalAlpha = 0.16;
        pen.fillRect(from, 0, to - from, height);
        pen.globalAlpha = 0.9;
        pen.fillRect(from, 0, 1, height);
        pen.fillRect(to - 1, 0, 1, height);
      }
      pen.globalAlpha = 0.12;
      for (const [from, to] of lines(...link.stretch)) pen.fillRect(left, Math.min(this.cellY(from), this.cellY(to)), width, Math.abs(this.cellY(to) - this.cellY(from)));
      pen.globalAlpha = 1;
    }
    this.drawToken(pen);
    const {hover} = link;
    if (hover) this.drawPointer(pen, hover);
    pen.fillStyle = drawn.dark ? '#ffb86b' : '#c2541a';
    for (const [from, to] of columns(link.cursor, link.cursor + 1e-6)) {
      if (this.timed) pen.fillRect(from - 0.75, 0, 1.5, height);
      else { pen.globalAlpha = 0.3; pen.fillRect(from, 0, to - from, height); pen.globalAlpha = 1; }
    }
    for (const [from] of lines(link.cursor, link.cursor + 1e-6)) {
      if (layer.y.time) pen.fillRect(left, this.cellY(from) - 0.75, width, 1.5);
    }
    pen.restore();
    this.say();
  }

  // The row or column of the chosen token, and an arrow from it to the sound it attends to most.
  drawToken(pen) {
    const {link, layer, left, width, drawn} = this;
    const {token} = link;
    if (layer.kind !== 'image' || !token || token.side !== this.side.title) return;
    pen.strokeStyle = drawn.dark ? '#ffb86b' : '#c2541a';
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

  // The cell of a row with the greatest value.
  peakOf(row) {
    const {values, x} = this.layer;
    let [best, most] = [-1, -Infinity];
    for (let cell = 0; cell < x.count; cell += 1) {
      const value = values.at(row * x.count + cell);
      if (value > most) { best = cell; most = value; }
    }
    return best;
  }

  drawPointer(pen, hover) {
    const {layer, left, width, drawn} = this;
    if (layer.kind === 'points') {
      if (this.shares(hover)) draws.ring(this, pen, hover);
      return;
    }
    pen.fillStyle = drawn.ink;
    pen.globalAlpha = 0.55;
    if (this.timed && hover.time !== null) pen.fillRect(this.timeX(hover.time) - 0.5, 0, 1, this.height);
    else if (this.shares(hover) && hover.x >= 0) pen.fillRect(this.cellX(layer.x, hover.x + 0.5) - 0.5, 0, 1, this.height);
    if (layer.kind === 'image' && this.shares(hover) && hover.y >= 0) pen.fillRect(left, this.cellY(hover.y + 0.5) - 0.5, width, 1);
    pen.globalAlpha = 1;
  }

  // Whether a cell that is pointed at elsewhere is one of this chart, too.
  shares(hover) { return hover.layer === this.layer.name && hover.head === this.layer.head; }

  say() {
    const said = this.read();
    if (this.readout.textContent !== said) this.readout.textContent = said;
  }

  // The values under the pointer, else at the cursor, with their axes.
  read() {
    const {link} = this;
    const here = link.hover && this.shares(link.hover) ? link.hover : null;
    const time = link.hover ? link.hover.time : link.cursor;
    return this.layers.map((layer, place) => draws.read(this, layer, place && layer.kind !== 'points' ? null : here, time)).filter(Boolean).join(' · ');
  }

  // The pointer.

  // What is at a place of the plot: time, cell along, cell up.
  under_(event) {
    const box = this.plot.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left - this.left) / this.width, 0), 1);
    const {layer, link} = this;
    let [time, x] = [null, -1];
    if (this.timed) {
      time = link.from + share * (link.to - link.from);
      x = layer.x.at(time);
    } else {
      x = Math.min(Math.floor(share * layer.x.count), layer.x.count - 1);
      const span = layer.x.span(x);
      if (span) time = (span[0] + span[1]) / 2;
    }
    const [first, last] = this.rows;
    const up = (event.clientY - box.top) / this.height;
    const row = Math.floor(first + (layer.y.up ? 1 - up : up) * (last - first));
    return {layer: layer.name, head: layer.head, time, x, y: row >= 0 && row < layer.y.count ? row : -1,
      point: [event.clientX - box.left, event.clientY - box.top]};
  }

  // A press without a selection moves the cursor, and chooses the token whose row was pressed.
  press(found) {
    const {link, layer} = this;
    link.set({stretch: null});
    if (found.time !== null) link.go(found.time);
    if (layer.kind === 'image' && (layer.y.tokens?.[found.y] ?? null) !== null) {
      link.set({token: {side: this.side.title, index: layer.y.tokens[found.y]}});
    } else if (layer.kind === 'spans' && layer.ofTokens) {
      const index = this.side.tokens.findIndex((each) => each.start !== null && found.time >= each.start && found.time < each.end);
      if (index >= 0) this.side.choose(index);
    }
  }
}
