// Paints the ruler, the waveform and the filter bank of a stretch of a recording.
import {stops, themed} from '../../visualise/scripts/colours.js';

const COLUMN = 0.01; // seconds of a column at level 0
const BANDS = 80;
const COARSEST = 20;
const SAMPLES = 32768; // of a request
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];

const channels = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));

// A time as a clock shows it, with as many decimals as a step needs.
export const clock = (time, step = 0.01) => {
  const places = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  const rounded = Math.max(Math.round(time * 10 ** places), 0) / 10 ** places;
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor(rounded / 60) % 60;
  const seconds = (rounded % 60).toFixed(places).padStart(places ? places + 3 : 2, '0');
  return hours ? `${hours}:${String(minutes).padStart(2, '0')}:${seconds}` : `${minutes}:${seconds}`;
};

export class Wave {
  constructor(element, about, tiles) {
    Object.assign(this, {element, about, tiles, shades: null});
  }

  // The colours, again after light and dark were changed.
  recolour(dark) {
    const colours = stops({diverging: false}, dark).map(channels);
    const [low, high] = this.about.contrast;
    this.shades = Uint32Array.from({length: 256}, (_, value) => {
      const place = Math.min(Math.max((value - low) / (high - low), 0), 1) * (colours.length - 1);
      const first = Math.min(Math.floor(place), colours.length - 2);
      const [red, green, blue] = colours[first].map((one, index) => Math.round(one + (place - first) * (colours[first + 1][index] - one)));
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
    this.generation = `${low}:${high}:${dark}`;
    this.ink = {line: themed(this.element, '--line'), muted: themed(this.element, '--muted'), accent: themed(this.element, '--accent')};
  }

  // Paints into a box of a canvas: seconds `from` to `to`, over `width` pixels.
  ruler(context, {from, to}, width, height) {
    const step = STEPS.find((each) => each / (to - from) * width >= 74) ?? 7200;
    const {muted, line} = this.ink;
    context.fillStyle = line;
    context.fillRect(0, height - 1, width, 1);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    for (let tick = Math.ceil(from / step); tick * step <= to; tick += 1) {
      const x = (tick * step - from) / (to - from) * width;
      context.fillStyle = line;
      context.fillRect(Math.round(x), height - 7, 1, 7);
      context.fillStyle = muted;
      if (x + 50 < width) context.fillText(clock(tick * step, step), x + 4, height / 2);
    }
  }

  waveform(context, {from, to}, width, top, height) {
    const {about, tiles} = this;
    const middle = top + height / 2;
    const scale = (height / 2 - 1) / Math.max(about.peak, 400);
    const pixel = (to - from) / width;
    const level = Math.min(Math.floor(Math.log2(pixel / COLUMN)), COARSEST);
    context.fillStyle = this.ink.accent;
    if (level < about.finest) return this.line(context, from, to, width, middle, scale);
    const column = COLUMN * 2 ** level;
    const per = about.columns.peaks;
    const first = Math.floor(from / column);
    const last = Math.min(Math.ceil(to / column), Math.ceil(about.seconds / column));
    const path = new Path2D();
    let [at, low, high] = [-1, 0, 0];
    const put = () => {
      if (at < 0) return;
      const begin = middle - high * scale;
      path.rect(at, begin, 1, Math.max((high - low) * scale, 1));
    };
    let [tile, values, shift] = [-1, null, 0];
    for (let place = first; place < last; place += 1) {
      const own = Math.floor(place / per);
      if (own !== tile) {
        tile = own;
        [values, shift] = this.found(level, tile);
      }
      const index = values && 2 * ((place >> shift) - (tile >> shift) * per);
      if (!values || index < 0 || index + 1 >= values.length) continue;
      const x = Math.floor((place * column - from) / pixel);
      if (x !== at) {
        put();
        [at, low, high] = [x, values[index], values[index + 1]];
        const next = Math.floor(((place + 1) * column - from) / pixel);
        for (let more = x + 1; more < next; more += 1) { put(); at = more; }
      } else {
        low = Math.min(low, values[index]);
        high = Math.max(high, values[index + 1]);
      }
    }
    put();
    context.fill(path);
    // The neighbours on both sides, for panning.
    for (const beside of [Math.floor(first / per) - 1, Math.floor(last / per) + 1]) {
      if (beside >= 0 && beside * per * column < about.seconds) tiles.get(`peaks/${level}/${beside}`, (bytes) => new Int16Array(bytes));
    }
    return null;
  }

  // A tile, or the part of a coarser one until it is here; and by how many levels that one is coarser.
  found(level, tile) {
    const read = (bytes) => new Int16Array(bytes);
    const exact = this.tiles.get(`peaks/${level}/${tile}`, read);
    if (exact) return [exact, 0];
    for (let coarser = level + 1; coarser <= COARSEST; coarser += 1) {
      const values = this.tiles.peek(`peaks/${coarser}/${tile >> (coarser - level)}`);
      if (values) return [values, coarser - level];
    }
    return [null, 0];
  }

  // Samples, each as a point of a line.
  line(context, from, to, width, middle, scale) {
    const {about, tiles} = this;
    const {rate} = about;
    const [first, last] = [Math.max(Math.floor(from * rate) - 1, 0), Math.min(Math.ceil(to * rate) + 1, about.frames - 1)];
    const across = width / ((to - from) * rate);
    context.strokeStyle = this.ink.accent;
    context.lineWidth = 1.25;
    context.beginPath();
    let begun = false;
    const dots = [];
    for (let tile = Math.floor(first / SAMPLES); tile <= Math.floor(last / SAMPLES); tile += 1) {
      const values = tiles.get(`samples/${tile * SAMPLES}/${SAMPLES}`, (bytes) => new Int16Array(bytes));
      if (!values) { begun = false; continue; }
      const end = Math.min(last, tile * SAMPLES + values.length - 1);
      for (let place = Math.max(first, tile * SAMPLES); place <= end; place += 1) {
        const x = (place - from * rate) * across;
        const y = middle - values[place - tile * SAMPLES] * scale;
        if (begun) context.lineTo(x, y);
        else context.moveTo(x, y);
        begun = true;
        if (across > 6) dots.push([x, y]);
      }
    }
    context.stroke();
    for (const [x, y] of dots) context.fillRect(x - 1.5, y - 1.5, 3, 3);
    return null;
  }

  filterbank(context, {from, to}, width, top, height) {
    const {about} = this;
    const pixel = (to - from) / width;
    const level = Math.min(Math.max(Math.floor(Math.log2(pixel / COLUMN)), 0), COARSEST);
    const column = COLUMN * 2 ** level;
    const per = about.columns.mels;
    context.imageSmoothingEnabled = false;
    const last = Math.min(Math.floor(to / column / per), Math.floor(about.seconds / column / per));
    for (let tile = Math.floor(from / column / per); tile <= last; tile += 1) {
      const picture = this.picture(level, tile, false) || this.coarser(level, tile);
      if (!picture) continue;
      const {canvas, at, seconds, begin, length} = picture;
      context.drawImage(canvas, begin, 0, length, BANDS, (at - from) / pixel, top, seconds / pixel, height);
    }
  }

  coarser(level, tile) {
    for (let shift = 1; level + shift <= COARSEST; shift += 1) {
      const found = this.picture(level + shift, tile >> shift, true);
      if (!found) continue;
      const per = this.about.columns.mels;
      const length = per / 2 ** shift;
      const begin = (tile - ((tile >> shift) << shift)) * length;
      const there = Math.min(length, found.length - begin);
      if (there <= 0) return null;
      const column = COLUMN * 2 ** (level + shift);
      return {canvas: found.canvas, at: tile * per * COLUMN * 2 ** level, seconds: there * column, begin, length: there};
    }
    return null;
  }

  // A tile as a small canvas, with its place in the recording.
  picture(level, tile, only) {
    const path = `mels/${level}/${tile}`;
    const held = only ? this.tiles.peek(path) : this.tiles.get(path, (bytes) => ({values: new Uint8Array(bytes)}));
    if (!held || !held.values.length) return null;
    const columns = held.values.length / BANDS;
    if (held.generation !== this.generation) {
      const canvas = held.canvas || document.createElement('canvas');
      Object.assign(canvas, {width: columns, height: BANDS});
      const image = new ImageData(columns, BANDS);
      const pixels = new Uint32Array(image.data.buffer);
      for (let x = 0, place = 0; x < columns; x += 1) {
        for (let band = BANDS - 1; band >= 0; band -= 1, place += 1) pixels[band * columns + x] = this.shades[held.values[place]];
      }
      canvas.getContext('2d').putImageData(image, 0, 0);
      Object.assign(held, {canvas, generation: this.generation});
    }
    const column = COLUMN * 2 ** level;
    return {canvas: held.canvas, at: tile * this.about.columns.mels * column, seconds: columns * column, begin: 0, length: columns};
  }
}
