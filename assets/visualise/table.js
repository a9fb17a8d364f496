// A table of texts, such as what each layer would write at each place; the colour of a cell is its value. Of many
// columns it shows those around the cursor. Text is only ever set as text content.
import {make} from '../../chat/scripts/dom.js';
import {css, gradient, isDark} from './colours.js';
import {number} from './parcel.js';

const MOST = 36; // columns at once

// Paler colours, on which text can be read.
const pale = (scale) => ({...scale, map: 'pale'});

export class Table {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layer: layers[0], first: 0});
    const {layer} = this;
    const scale = layer.scale ? make('span', {class: 'scale'}, `${layer.scale.name} ${number(layer.scale.low)}`, make('i', {}), number(layer.scale.high)) : null;
    this.swatch = scale?.querySelector('i');
    this.readout = make('output', {class: 'value', 'aria-live': 'off'});
    this.box = make('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': `${layer.title}, ${side.title}`});
    this.root = make('figure', {class: 'chart table', 'data-layer': layer.name, 'data-side': side.title},
      make('figcaption', {}, make('span', {class: 'name'}, name ?? layer.title), make('span', {class: 'key'}, scale), this.readout), this.box);
    this.box.addEventListener('pointermove', (event) => this.point(event.target.closest('td[data-x]')));
    this.box.addEventListener('pointerleave', () => link.set({hover: null}));
    this.box.addEventListener('click', (event) => {
      const cell = event.target.closest('[data-x]');
      const span = cell && layer.x.span(Number(cell.dataset.x));
      if (cell && (layer.x.tokens?.[cell.dataset.x] ?? null) !== null) side.choose(layer.x.tokens[cell.dataset.x]);
      else if (span) link.go(span[0]);
    });
  }

  point(cell) {
    if (!cell) return;
    const [x, y] = [Number(cell.dataset.x), Number(cell.dataset.y)];
    const span = this.layer.x.span(x);
    this.link.set({hover: {layer: this.layer.name, head: undefined, time: span ? (span[0] + span[1]) / 2 : null, x, y}});
  }

  get now() {
    const {link, layer, side} = this;
    if (layer.x.tokens && link.token?.side === side.title) return layer.x.tokens.indexOf(link.token.index);
    return layer.x.at(link.cursor);
  }

  draw() {
    const {layer} = this;
    const {x, y, values, scale} = layer;
    const dark = isDark(this.root);
    const now = this.now;
    if (x.count > MOST && now >= 0 && (now < this.first + 2 || now >= this.first + MOST - 2)) {
      this.first = Math.min(Math.max(now - MOST / 2, 0), x.count - MOST);
    }
    const look = `${dark} ${this.first}`;
    if (this.look !== look) {
      this.look = look;
      const last = Math.min(this.first + MOST, x.count);
      const columns = Array.from({length: last - this.first}, (_, index) => this.first + index);
      const called = (axis, index) => axis.ticks?.[index] ?? (axis.time ? `${(axis.time[0] + index * axis.time[1]).toFixed(2)} s` : axis.number(index));
      const head = make('thead', {}, make('tr', {}, make('th', {scope: 'col'}, [y.label, x.label].filter(Boolean).join(' \\ ')),
        ...columns.map((column) => make('th', {scope: 'col', 'data-x': column}, called(x, column)))));
      const body = make('tbody', {}, ...Array.from({length: y.count}, (_, row) => make('tr', {}, make('th', {scope: 'row'}, called(y, row)),
        ...columns.map((column) => {
          const value = values.at(row * x.count + column);
          return make('td', {'data-x': column, 'data-y': row, style: scale ? `background: ${css(value, pale(scale), dark)}` : null}, layer.labels[row * x.count + column] ?? number(value));
        }))));
      const note = columns.length < x.count ? make('caption', {}, `${columns.length} of ${x.count} columns, those around the cursor`) : null;
      this.box.replaceChildren(make('table', {}, note, head, body));
      if (this.swatch) this.swatch.style.background = gradient(pale(scale), dark, 0);
    }
    this.mark();
  }

  mark() {
    const {now} = this;
    if (this.marked === `${this.look} ${now}`) return;
    this.marked = `${this.look} ${now}`;
    for (const each of this.box.querySelectorAll('.now')) each.classList.remove('now');
    for (const each of this.box.querySelectorAll(`[data-x="${now}"]`)) each.classList.add('now');
    const column = this.box.querySelector('th.now');
    if (!column) return;
    const [left, right] = [column.offsetLeft, column.offsetLeft + column.offsetWidth];
    if (left - 90 < this.box.scrollLeft || right > this.box.scrollLeft + this.box.clientWidth) this.box.scrollLeft = left - this.box.clientWidth / 2;
  }

  drawAbove() {
    const {layer, link, now} = this;
    if (layer.x.count > MOST && now >= 0 && (now < this.first + 2 || now >= this.first + MOST - 2)) this.draw();
    else this.mark();
    const here = link.hover && link.hover.layer === layer.name && link.hover.y >= 0 ? link.hover : null;
    const place = here ? here.y * layer.x.count + here.x : -1;
    const said = here ? [layer.x.name(here.x), layer.y.name(here.y), layer.labels[place] && `“${layer.labels[place]}”`, number(layer.values.at(place))].filter(Boolean).join(' · ') : '';
    if (this.readout.textContent !== said) this.readout.textContent = said;
  }
}
