// A grid of small images, such as the heads of a layer; a press enlarges one, in all sides at once.
import {make} from '../../chat/scripts/dom.js';
import {Chart} from './chart.js';
import {isDark, table} from './colours.js';
import {fitted, small} from './paint.js';

const MOST = 160; // points of a small image in each direction

// One image of an array [images, rows, columns], as a layer of its own: "each head of X" becomes "head 3 of X".
const single = (layer, index) => {
  const {values} = layer;
  const size = layer.y.count * layer.x.count;
  const one = Object.create(values);
  one.codes = values.codes.subarray(index * size, (index + 1) * size);
  one.shape = values.shape.slice(-2);
  const label = layer.labels[index] || String(index);
  const title = /^each head of /i.test(layer.title) ? layer.title.replace(/^each head/i, label) : `${layer.title}: ${label}`;
  return {...layer, values: one, labels: [], title, head: index};
};

export class Heads {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layer: layers[0], chart: null});
    this.larger = make('div', {class: 'larger'});
    const count = this.layer.values.shape[0];
    this.pieces = Array.from({length: count}, (_, index) => {
      const [picture, above] = [make('canvas', {'aria-hidden': 'true'}), make('canvas', {class: 'above', 'aria-hidden': 'true'})];
      const label = this.layer.labels[index] || String(index);
      const button = make('button', {type: 'button', class: 'head', 'aria-pressed': 'false', 'data-head': index,
        'aria-label': `Enlarge ${label} of ${side.title}`, onclick: () => link.set({head: link.head === index ? null : index})},
      make('span', {class: 'thumb'}, picture, above), make('small', {}, label));
      return {button, picture, above, index};
    });
    this.grid = make('div', {class: 'heads', role: 'group', 'aria-label': `${this.layer.title}, ${side.title}`}, ...this.pieces.map((each) => each.button));
    this.root = make('div', {class: 'chart', 'data-layer': this.layer.name, 'data-side': side.title},
      make('p', {class: 'name'}, name ?? this.layer.title), this.grid, this.larger);
  }

  draw() {
    if (!this.root.isConnected || !this.root.clientWidth) return;
    const dark = isDark(this.root);
    const {values, scale, x, y} = this.layer;
    const look = `${dark} ${this.link.lift}`;
    if (this.look !== look) {
      this.look = look;
      const colours = table(values, scale, dark, this.link.lift);
      const size = x.count * y.count;
      for (const {picture, index} of this.pieces) {
        const part = values.codes.subarray(index * size, (index + 1) * size);
        const made = small(part, colours, y.count, x.count, y.up, MOST, values.none, scale.diverging);
        Object.assign(picture, {width: made.width, height: made.height});
        picture.getContext('2d').drawImage(made, 0, 0);
      }
    }
    this.enlarge();
    this.chart?.draw();
    this.drawAbove();
  }

  enlarge() {
    const {head} = this.link;
    for (const {button, index} of this.pieces) button.setAttribute('aria-pressed', String(index === head));
    if (this.chart?.layer.head === head || (head === null && !this.chart)) return;
    this.chart = head === null || head >= this.pieces.length ? null : new Chart(this.link, this.side, [single(this.layer, head)]);
    this.larger.replaceChildren(...(this.chart ? [this.chart.root] : []));
  }

  drawAbove() {
    const {link, layer} = this;
    const share = (axis) => {
      if (!axis.time) return null;
      const at = (link.cursor - axis.time[0]) / axis.time[1] / axis.count;
      return at >= 0 && at <= 1 ? at : null;
    };
    const ends = [share(layer.x), share(layer.y)];
    for (const {above} of this.pieces) {
      const [width, height] = [above.parentElement.clientWidth, above.parentElement.clientHeight];
      if (!width) return;
      const pen = fitted(above, width, height);
      pen.fillStyle = isDark(this.root) ? '#ffb86b' : '#c2541a';
      if (ends[0] !== null) pen.fillRect(ends[0] * width - 0.5, 0, 1, height);
      if (ends[1] !== null) pen.fillRect(0, ends[1] * height - 0.5, width, 1);
    }
    this.chart?.drawAbove();
  }
}
