// A grid of thumbnails, such as the heads of a layer; a press enlarges the same one on all sides.
import {make} from '../../chat/scripts/dom.js';
import {Chart} from './chart.js';
import {isDark, colourTable} from './colours.js';
import {fitCanvas, shrink} from './paint.js';

const MAX_THUMBNAIL_SIZE = 160; // pixels of a thumbnail in each direction

// Returns a layer with one image of an array [images, rows, columns]; its title "each head of X" becomes "head 3 of X".
const singleImage = (layer, index) => {
  const {values} = layer;
  const size = layer.y.count * layer.x.count;
  const imageValues = Object.create(values);
  imageValues.codes = values.codes.subarray(index * size, (index + 1) * size);
  imageValues.shape = values.shape.slice(-2);
  const label = layer.labels[index] || String(index);
  const title = /^each head of /i.test(layer.title) ? layer.title.replace(/^each head/i, label) : `${layer.title}: ${label}`;
  return {...layer, values: imageValues, labels: [], title, head: index};
};

export class Heads {
  constructor(link, side, layers, name) {
    Object.assign(this, {link, side, layer: layers[0], chart: null});
    this.enlargedBox = make('div', {class: 'larger'});
    const count = this.layer.values.shape[0];
    this.thumbnails = Array.from({length: count}, (_, index) => {
      const [canvas, overlay] = [make('canvas', {'aria-hidden': 'true'}), make('canvas', {class: 'above', 'aria-hidden': 'true'})];
      const label = this.layer.labels[index] || String(index);
      const button = make('button', {type: 'button', class: 'head', 'aria-pressed': 'false', 'data-head': index,
        'aria-label': `Enlarge ${label} of ${side.title}`, onclick: () => link.set({head: link.head === index ? null : index})},
      make('span', {class: 'thumb'}, canvas, overlay), make('small', {}, label));
      return {button, canvas, overlay, index};
    });
    this.grid = make('div', {class: 'heads', role: 'group', 'aria-label': `${this.layer.title}, ${side.title}`}, ...this.thumbnails.map((each) => each.button));
    this.root = make('div', {class: 'chart', 'data-layer': this.layer.name, 'data-side': side.title},
      make('p', {class: 'name'}, name ?? this.layer.title), this.grid, this.enlargedBox);
  }

  draw() {
    if (!this.root.isConnected || !this.root.clientWidth) return;
    const dark = isDark(this.root);
    const {values, scale, x, y} = this.layer;
    const paintKey = `${dark} ${this.link.lift}`;
    if (this.paintKey !== paintKey) {
      this.paintKey = paintKey;
      const colours = colourTable(values, scale, dark, this.link.lift);
      const size = x.count * y.count;
      for (const {canvas, index} of this.thumbnails) {
        const codes = values.codes.subarray(index * size, (index + 1) * size);
        const thumbnail = shrink(codes, colours, y.count, x.count, y.up, MAX_THUMBNAIL_SIZE, values.missingCode, scale.diverging);
        Object.assign(canvas, {width: thumbnail.width, height: thumbnail.height});
        canvas.getContext('2d').drawImage(thumbnail, 0, 0);
      }
    }
    this.enlarge();
    this.chart?.draw();
    this.drawOverlay();
  }

  enlarge() {
    const {head} = this.link;
    for (const {button, index} of this.thumbnails) button.setAttribute('aria-pressed', String(index === head));
    if (this.chart?.layer.head === head || (head === null && !this.chart)) return;
    this.chart = head === null || head >= this.thumbnails.length ? null : new Chart(this.link, this.side, [singleImage(this.layer, head)]);
    this.enlargedBox.replaceChildren(...(this.chart ? [this.chart.root] : []));
  }

  drawOverlay() {
    const {link, layer} = this;
    const cursorShare = (axis) => {
      if (!axis.time) return null;
      const share = (link.cursor - axis.time[0]) / axis.time[1] / axis.count;
      return share >= 0 && share <= 1 ? share : null;
    };
    const shares = [cursorShare(layer.x), cursorShare(layer.y)];
    for (const {overlay} of this.thumbnails) {
      const [width, height] = [overlay.parentElement.clientWidth, overlay.parentElement.clientHeight];
      if (!width) return;
      const pen = fitCanvas(overlay, width, height);
      pen.fillStyle = isDark(this.root) ? '#ffb86b' : '#c2541a';
      if (shares[0] !== null) pen.fillRect(shares[0] * width - 0.5, 0, 1, height);
      if (shares[1] !== null) pen.fillRect(0, shares[1] * height - 0.5, width, 1);
    }
    this.chart?.drawOverlay();
  }
}
