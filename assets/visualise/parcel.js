// What the server sends, as panels/visualise/parcel.py writes it: JSON with arrays behind it, all numbers little-endian.
// Large arrays are codes of one or two bytes; `Values` knows what number a code stands for. It draws nothing.
const TYPES = {f4: Float32Array, u2: Uint16Array, u1: Uint8Array};

export class Refused extends Error {}

// Returns the bytes at an address of the tab; throws `Refused` with the server's sentence.
export const fetchBytes = async (path) => {
  let answer;
  try {
    answer = await fetch(new URL(`visualise/${path}`, document.baseURI));
  } catch {
    throw new Refused('The server cannot be reached; what you entered is still here. Is it still running?');
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Refused(told.error || `The server answered with ${answer.status}.`);
  }
  return answer.arrayBuffer();
};

export class Values {
  constructor(buffer, begin, {type, at, shape, low, high, power, faint}) {
    const count = shape.reduce((product, each) => product * each, 1);
    this.codes = new TYPES[type](buffer, begin + at, count);
    this.shape = shape;
    this.coded = type !== 'f4';
    this.none = type === 'u1' ? 255 : 65535; // the code for a value that is not a number
    Object.assign(this, {low, high, power: power || 1, faint});
  }

  // The number that a code stands for.
  value(code) {
    if (!this.coded) return code;
    if (code === this.none) return NaN;
    return this.low + (this.high - this.low) * (code / (this.none - 1)) ** this.power;
  }

  at(place) { return this.value(this.codes[place]); }
}

// A dimension of an array. Its positions are cells; they stand for stretches of time, for tokens, or for neither.
export class Axis {
  constructor(head, count) {
    Object.assign(this, {label: '', unit: '', start: 0, step: 1, ticks: null, time: null, tokens: null, spans: null, up: false}, head, {count});
  }

  // Where a cell begins and ends in seconds; null where it has no time.
  span(index) {
    if (this.time) return [this.time[0] + index * this.time[1], this.time[0] + (index + 1) * this.time[1]];
    return this.spans?.[index] || null;
  }

  // The cell at a time; -1 where there is none.
  at(seconds) {
    if (this.time) {
      const index = Math.floor((seconds - this.time[0]) / this.time[1] + 1e-6);
      return index >= 0 && index < this.count ? index : -1;
    }
    return this.spans ? this.spans.findIndex((span) => span && seconds >= span[0] && seconds < span[1]) : -1;
  }

  // What a cell is called, with its unit.
  name(index) {
    if (this.ticks) return String(this.ticks[index] ?? index);
    if (this.unit === 'seconds') return `${(this.start + index * this.step).toFixed(2)} s`;
    return `${this.label} ${this.number(index)}`;
  }

  // The number of a cell: of its beginning if that is whole, else of its middle.
  number(index) {
    const whole = Number.isInteger(this.start) && Number.isInteger(this.step);
    return number(this.start + (whole ? index : index + 0.5) * this.step);
  }
}

// Returns the header with its layers' arrays and axes made ready.
export const readParcel = (buffer) => {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const begin = 8 * Math.ceil((4 + length) / 8); // arrays begin at multiples of eight bytes
  for (const side of header.sides) {
    for (const layer of side.layers) {
      layer.values = new Values(buffer, begin, layer.array);
      const {shape} = layer.values;
      layer.x = new Axis(layer.x, layer.kind === 'table' || layer.kind === 'image' || layer.kind === 'lines' || layer.kind === 'band' ? shape.at(-1) : shape[0]);
      layer.y = new Axis(layer.y, shape.length > 1 ? shape.at(-2) : 1);
    }
  }
  return header;
};

// A number as the page writes it: three significant digits.
export const number = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  const written = value !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(3)));
  return written.replaceAll('-', '−');
};
