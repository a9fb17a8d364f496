// Reads what panels/visualise/parcel.py writes: JSON, then arrays, all numbers little-endian.
// Large arrays are codes of one or two bytes; `Values` converts a code to its number. This file draws nothing.
const TYPES = {f4: Float32Array, u2: Uint16Array, u1: Uint8Array};

export class Refused extends Error {}

// Returns the bytes at an address of the tab; throws `Refused` with the error text of the server.
export const fetchBytes = async (path) => {
  let answer;
  try {
    answer = await fetch(new URL(`visualise/${path}`, document.baseURI));
  } catch {
    throw new Refused('The server cannot be reached; what you entered is still here. Is it still running?');
  }
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    throw new Refused(content.error || `The server answered with ${answer.status}.`);
  }
  return answer.arrayBuffer();
};

export class Values {
  constructor(buffer, begin, {type, at: offset, shape, low, high, power, faint}) {
    const count = shape.reduce((product, each) => product * each, 1);
    this.codes = new TYPES[type](buffer, begin + offset, count);
    this.shape = shape;
    this.isCoded = type !== 'f4';
    this.missingCode = type === 'u1' ? 255 : 65535; // the code of NaN
    Object.assign(this, {low, high, power: power || 1, faint});
  }

  // Returns the number of a code.
  value(code) {
    if (!this.isCoded) return code;
    if (code === this.missingCode) return NaN;
    return this.low + (this.high - this.low) * (code / (this.missingCode - 1)) ** this.power;
  }

  at(index) { return this.value(this.codes[index]); }
}

// A dimension of an array. Its positions are cells; they stand for stretches of time, for tokens, or for neither.
export class Axis {
  constructor(head, count) {
    Object.assign(this, {label: '', unit: '', start: 0, step: 1, ticks: null, time: null, tokens: null, spans: null, up: false}, head, {count});
  }

  // Returns [begin, end] of a cell in seconds; null for a cell without a time.
  span(index) {
    if (this.time) return [this.time[0] + index * this.time[1], this.time[0] + (index + 1) * this.time[1]];
    return this.spans?.[index] || null;
  }

  // Returns the cell at a time; -1 where there is none.
  at(seconds) {
    if (this.time) {
      const index = Math.floor((seconds - this.time[0]) / this.time[1] + 1e-6);
      return index >= 0 && index < this.count ? index : -1;
    }
    return this.spans ? this.spans.findIndex((span) => span && seconds >= span[0] && seconds < span[1]) : -1;
  }

  // Returns the name of a cell, with its unit.
  name(index) {
    if (this.ticks) return String(this.ticks[index] ?? index);
    if (this.unit === 'seconds') return `${(this.start + index * this.step).toFixed(2)} s`;
    return `${this.label} ${this.number(index)}`;
  }

  // Returns the number of a cell: the value at its start where those are integers, else the value at its centre.
  number(index) {
    const isWhole = Number.isInteger(this.start) && Number.isInteger(this.step);
    return number(this.start + (isWhole ? index : index + 0.5) * this.step);
  }
}

// Returns the header; its layers have `Values` and `Axis` objects.
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

// Returns a number as the page writes it: three significant digits.
export const number = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  const magnitude = Math.abs(value);
  const text = value !== 0 && (magnitude < 1e-3 || magnitude >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(3)));
  return text.replaceAll('-', '−');
};
