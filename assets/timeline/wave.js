// Paints the ruler, the waveform and the filter bank of a stretch of a recording.
import {stops, themed} from '../../visualise/scripts/colours.js';

const COLUMN = 0.01; // seconds of a column at level 0
const BANDS = 80;
const COARSEST = 20;
const SAMPLES = 32768; // of a request
const READ = {peaks: (bytes) => new Int16Array(bytes), mels: (bytes) => new Uint8Array(bytes)};
// Pixels that a label of the ruler may take, and that its text takes, while text has its usual size.
const LABEL = 74;
const LABEL_TEXT = 50;
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
    this.ink = {line: themed(this.element, '--line'), muted: themed(this.element, '--muted'), accent: themed(this.element, '--accent')};
  }

  // Paints columns `left` to `right` of a view, with text of so many times its usual size.
  ruler(context, view, left, right, height, scale) {
    const {seconds, sharp} = view;
    const step = STEPS.find((each) => each / (seconds * sharp) >= LABEL * scale) ?? 7200;
    const {muted, line} = this.ink;
    context.fillStyle = line;
    context.fillRect(left / sharp, height - 1, (right - left) / sharp, 1);
    context.font = `${11 * scale}px system-ui, sans-serif`;
    context.textBaseline = 'middle';
    const to = view.time(right);
    const end = view.x(this.about.seconds); // no pan shows the rest of a label that the end of the recording cuts
    for (let tick = Math.max(Math.ceil(view.time(left - LABEL * scale * sharp) / step), 0); tick * step <= to; tick += 1) {
      const x = view.x(tick * step);
      context.fillStyle = line;
      context.fillRect(x, height - 7, 1, 7);
      context.fillStyle = muted;
      if (x + LABEL_TEXT * scale < end) context.fillText(clock(tick * step, step), x + 4, height / 2);
    }
  }

  // This method and the next ones return whether they knew all that they had to paint.
  waveform(context, view, left, right, top, height) {
    const {about, tiles} = this;
    const {seconds, first, sharp} = view;
    const middle = top + height / 2;
    const scale = (height / 2 - 1) / Math.max(about.peak, 400);
    const level = Math.min(Math.floor(Math.log2(seconds / COLUMN)), COARSEST);
    if (level < about.finest) return this.line(context, view, left, right, middle, scale);
    const column = COLUMN * 2 ** level;
    const per = about.columns.peaks;
    const end = Math.min(Math.ceil(view.time(right) / column), Math.ceil(about.seconds / column));
    const edge = (y) => Math.round(y * sharp) / sharp; // a height between two pixels would be blurred
    context.fillStyle = this.ink.accent;
    let [at, low, high] = [null, 0, 0];
    const put = () => {
      if (at === null) return;
      const begin = edge(middle - high * scale);
      context.fillRect((at - first) / sharp, begin, 1 / sharp, Math.max(edge(middle - low * scale) - begin, 1));
    };
    let [tile, values, shift, fresh, known] = [-1, null, 0, true, true];
    for (let place = Math.max(Math.floor(view.time(left) / column), 0); place < end; place += 1) {
      const own = Math.floor(place / per);
      if (own !== tile) {
        tile = own;
        [values, shift, fresh] = this.found('peaks', level, tile);
        known &&= fresh;
      }
      const index = values && 2 * ((place >> shift) - (tile >> shift) * per);
      if (!values || index < 0 || index + 1 >= values.length) continue;
      const x = Math.floor(place * column / seconds);
      if (x !== at) {
        put();
        [at, low, high] = [x, values[index], values[index + 1]];
      } else {
        low = Math.min(low, values[index]);
        high = Math.max(high, values[index + 1]);
      }
    }
    put();
    // The neighbours on both sides, for panning.
    const [before, after] = [view.time(0), view.time(view.columns)].map((time) => Math.floor(time / column / per));
    for (const beside of [before - 1, after + 1]) {
      if (beside >= 0 && beside * per * column < about.seconds) tiles.get(`peaks/${level}/${beside}`, READ.peaks);
    }
    return known;
  }

  // Returns a tile, or a coarser one that covers it until it arrives; by how many levels that one is coarser; and whether
  // the tile is fresh (see `Tiles.fresh`).
  found(kind, level, tile) {
    const path = `${kind}/${level}/${tile}`;
    const exact = this.tiles.get(path, READ[kind]);
    const fresh = this.tiles.fresh(path);
    if (exact && (exact.length || fresh)) return [exact, 0, fresh];
    for (let coarser = level + 1; coarser <= COARSEST; coarser += 1) {
      const values = this.tiles.peek(`${kind}/${coarser}/${tile >> (coarser - level)}`);
      if (values?.length) return [values, coarser - level, false];
    }
    return [null, 0, false];
  }

  // Samples, each as a point of a line.
  line(context, view, left, right, middle, scale) {
    const {about, tiles} = this;
    const {rate} = about;
    const {seconds, sharp} = view;
    const near = 4 * sharp; // columns beside, from which lines and dots reach into these
    const first = Math.max(Math.floor(view.time(left - near) * rate) - 1, 0);
    const last = Math.min(Math.ceil(view.time(right + near) * rate) + 1, about.frames - 1);
    const across = 1 / (rate * seconds * sharp);
    context.fillStyle = this.ink.accent;
    context.strokeStyle = this.ink.accent;
    context.lineWidth = 1.25;
    context.beginPath();
    let [begun, known] = [false, true];
    const dots = [];
    for (let tile = Math.floor(first / SAMPLES); tile <= Math.floor(last / SAMPLES); tile += 1) {
      const values = tiles.get(`samples/${tile * SAMPLES}/${SAMPLES}`, READ.peaks);
      if (!values) { begun = false; known = false; continue; }
      const end = Math.min(last, tile * SAMPLES + values.length - 1);
      for (let place = Math.max(first, tile * SAMPLES); place <= end; place += 1) {
        const x = (place / rate / seconds - view.first) / sharp;
        const y = middle - values[place - tile * SAMPLES] * scale;
        if (begun) context.lineTo(x, y);
        else context.moveTo(x, y);
        begun = true;
        if (across > 6) dots.push([x, y]);
      }
    }
    context.stroke();
    for (const [x, y] of dots) context.fillRect(x - 1.5, y - 1.5, 3, 3);
    return known;
  }

  filterbank(context, view, left, right, top, height) {
    const {seconds, sharp} = view;
    const level = Math.min(Math.max(Math.floor(Math.log2(seconds / COLUMN)), 0), COARSEST);
    const column = COLUMN * 2 ** level;
    const per = this.about.columns.mels;
    const [wide, high] = [right - left, Math.round(height * sharp)];
    const bands = Array.from({length: high}, (_, y) => BANDS - 1 - Math.floor((y + 0.5) * BANDS / high));
    const image = new ImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    let [tile, values, shift, fresh, known] = [-1, null, 0, true, true];
    for (let x = 0; x < wide; x += 1) {
      const place = Math.floor(view.time(left + x + 0.5) / column);
      if (place < 0 || place * column >= this.about.seconds) continue;
      const own = Math.floor(place / per);
      if (own !== tile) {
        tile = own;
        [values, shift, fresh] = this.found('mels', level, tile);
        known &&= fresh;
      }
      const begin = values && BANDS * ((place >> shift) - (tile >> shift) * per);
      if (!values || begin < 0 || begin >= values.length) continue;
      for (let y = 0, at = x; y < high; y += 1, at += wide) pixels[at] = this.shades[values[begin + bands[y]]];
    }
    context.putImageData(image, left, Math.round(top * sharp));
    return known;
  }
}
