// A table of texts, such as the best token of each layer at each position; the colour of a cell is its value. A table
// with many columns shows those around the cursor. Text is only ever set as text content.
import {make} from '../../chat/scripts/dom.js';
import {cssColour, gradient, isDark} from './colours.js';
import {number} from './parcel.js';

const MAX_COLUMNS = 36; // that the table shows at once

// Paler colours, so that the text over them is readable.
const paleScale = (scale) => ({...scale, map: 'pale'});

export class Table {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layer: layers[0], firstColumn: 0});
    const {layer} = this;
    const scale = layer.scale ? make('span', {class: 'scale'}, `${layer.scale.name} ${number(layer.scale.low)}`, make('i', {}), number(layer.scale.high)) : null;
    this.swatch = scale?.querySelector('i');
    this.readout = make('output', {class: 'value', 'aria-live': 'off'});
    this.box = make('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': `${layer.title}, ${side.title}`});
    this.root = make('figure', {class: 'chart table', 'data-layer': layer.name, 'data-side': side.title},
      make('figcaption', {}, make('span', {class: 'name'}, name ?? layer.title), make('span', {class: 'key'}, scale), this.readout), this.box);
    this.box.addEventListener('pointermove', (event) => this.showHover(event.target.closest('td[data-x]')));
    this.box.addEventListener('pointerleave', () => link.set({hover: null}));
    this.box.addEventListener('click', (event) => {
      const cell = event.target.closest('[data-x]');
      const span = cell && layer.x.span(Number(cell.dataset.x));
      if (cell && (layer.x.tokens?.[cell.dataset.x] ?? null) !== null) side.choose(layer.x.tokens[cell.dataset.x]);
      else if (span) link.go(span[0]);
    });
  }

  showHover(cell) {
    if (!cell) return;
    const [x, y] = [Number(cell.dataset.x), Number(cell.dataset.y)];
    const span = this.layer.x.span(x);
    this.link.set({hover: {layer: this.layer.name, head: undefined, time: span ? (span[0] + span[1]) / 2 : null, x, y}});
  }

  get currentColumn() {
    const {link, layer, side} = this;
    if (layer.x.tokens && link.token?.side === side.title) return layer.x.tokens.indexOf(link.token.index);
    return layer.x.at(link.cursor);
  }

  draw() {
    const {layer} = this;
    const {x, y, values, scale} = layer;
    const dark = isDark(this.root);
    const currentColumn = this.currentColumn;
    if (x.count > MAX_COLUMNS && currentColumn >= 0 && (currentColumn < this.firstColumn + 2 || currentColumn >= this.firstColumn + MAX_COLUMNS - 2)) {
      this.firstColumn = Math.min(Math.max(currentColumn - MAX_COLUMNS / 2, 0), x.count - MAX_COLUMNS);
    }
    const drawnKey = `${dark} ${this.firstColumn}`;
    if (this.drawnKey !== drawnKey) {
      this.drawnKey = drawnKey;
      const endColumn = Math.min(this.firstColumn + MAX_COLUMNS, x.count);
      const columns = Array.from({length: endColumn - this.firstColumn}, (_, index) => this.firstColumn + index);
      const cellName = (axis, index) => axis.ticks?.[index] ?? (axis.time ? `${(axis.time[0] + index * axis.time[1]).toFixed(2)} s` : axis.number(index));
      const head = make('thead', {}, make('tr', {}, make('th', {scope: 'col'}, [y.label, x.label].filter(Boolean).join(' \\ ')),
        ...columns.map((column) => make('th', {scope: 'col', 'data-x': column}, cellName(x, column)))));
      const body = make('tbody', {}, ...Array.from({length: y.count}, (_, row) => make('tr', {}, make('th', {scope: 'row'}, cellName(y, row)),
        ...columns.map((column) => {
          const value = values.at(row * x.count + column);
          return make('td', {'data-x': column, 'data-y': row, style: scale ? `background: ${cssColour(value, paleScale(scale), dark)}` : null}, layer.labels[row * x.count + column] ?? number(value));
        }))));
      const note = columns.length < x.count ? make('caption', {}, `${columns.length} of ${x.count} columns, those around the cursor`) : null;
      this.box.replaceChildren(make('table', {}, note, head, body));
      if (this.swatch) this.swatch.style.background = gradient(paleScale(scale), dark, 0);
    }
    this.markCurrent();
  }

  markCurrent() {
    const {currentColumn} = this;
    if (this.markKey === `${this.drawnKey} ${currentColumn}`) return;
    this.markKey = `${this.drawnKey} ${currentColumn}`;
    for (const each of this.box.querySelectorAll('.now')) each.classList.remove('now');
    for (const each of this.box.querySelectorAll(`[data-x="${currentColumn}"]`)) each.classList.add('now');
    const column = this.box.querySelector('th.now');
    if (!column) return;
    const [left, right] = [column.offsetLeft, column.offsetLeft + column.offsetWidth];
    if (left - 90 < this.box.scrollLeft || right > this.box.scrollLeft + this.box.clientWidth) this.box.scrollLeft = left - this.box.clientWidth / 2;
  }

  drawOverlay() {
    const {layer, link, currentColumn} = this;
    if (layer.x.count > MAX_COLUMNS && currentColumn >= 0 && (currentColumn < this.firstColumn + 2 || currentColumn >= this.firstColumn + MAX_COLUMNS - 2)) this.draw();
    else this.markCurrent();
    const hover = link.hover && link.hover.layer === layer.name && link.hover.y >= 0 ? link.hover : null;
    const index = hover ? hover.y * layer.x.count + hover.x : -1;
    const text = hover ? [layer.x.name(hover.x), layer.y.name(hover.y), layer.labels[index] && `“${layer.labels[index]}”`, number(layer.values.at(index))].filter(Boolean).join(' · ') : '';
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }
}
