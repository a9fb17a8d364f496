// Colours of values: a table has the colour of every code of an array. Colours follow the light or dark theme.
const SHADES = {light: ['#ffffff', '#d6ecea', '#90cdca', '#46a5a3', '#0e6e70', '#0a484b'],
  dark: ['#17211e', '#0a484b', '#0e6e70', '#46a5a3', '#addad7', '#eef7f6']};
const SIGNED = {light: ['#0b4f8a', '#3f8fd2', '#b9d7ef', '#ffffff', '#f3cfab', '#e08a3c', '#8f4a10'],
  dark: ['#9fd0ff', '#3f8fd2', '#1f4260', '#17211e', '#5c3c1e', '#e08a3c', '#ffd2a3']};
export const LINES = ['#3f8fd2', '#e08a3c', '#5d9a3a', '#9a5bb0', '#c0504d', '#1f8786', '#b7791f', '#7a8490'];

export const isDark = (element) => Boolean(element.closest('.dark') || document.body.classList.contains('dark'));

// Returns the value of a CSS variable.
export const themed = (element, name) => getComputedStyle(element).getPropertyValue(name).trim() || '#888';

// Returns the colours of a scale from low to high, as hexadecimal text.
export const stops = (scale, dark) => {
  const mode = dark ? 'dark' : 'light';
  const colours = scale.diverging ? SIGNED[mode] : SHADES[mode];
  if (scale.map !== 'pale') return colours;
  return scale.diverging ? colours.slice(1, -1) : colours.slice(0, 3);
};

const channels = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));

const interpolate = (colours, share) => {
  const position = share * (colours.length - 1);
  const first = Math.min(Math.floor(position), colours.length - 2);
  return colours[first].map((channel, index) => Math.round(channel + (position - first) * (colours[first + 1][index] - channel)));
};

// Returns the position of a value on its scale, from 0 to 1; `lift` above 0 makes faint values stronger.
export const share = (value, scale, lift) => {
  const range = scale.high - scale.low || 1;
  const fraction = Math.min(Math.max((value - scale.low) / range, 0), 1);
  const power = 1 - 0.8 * lift;
  if (!scale.diverging) return fraction ** power;
  const signed = 2 * fraction - 1;
  return (1 + Math.sign(signed) * Math.abs(signed) ** power) / 2;
};

// Returns the colour of each code as a 32-bit pixel.
export const colourTable = (values, scale, dark, lift) => {
  const colours = stops(scale, dark).map(channels);
  const shades = Array.from({length: 256}, (_, level) => {
    const [red, green, blue] = interpolate(colours, level / 255);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
  const pixels = new Uint32Array(values.missingCode + 1);
  for (let code = 0; code < values.missingCode; code += 1) {
    pixels[code] = shades[Math.round(255 * share(values.value(code), scale, lift))];
  }
  return pixels; // the pixel of NaN stays 0, which is transparent
};

// Returns the colour of one value as a CSS colour.
export const cssColour = (value, scale, dark, lift = 0) => {
  if (!Number.isFinite(value)) return 'transparent';
  return `rgb(${interpolate(stops(scale, dark).map(channels), share(value, scale, lift)).join(' ')})`;
};

// Returns the colours of a scale, from low to high, as a CSS gradient.
export const gradient = (scale, dark, lift) => {
  const {low, high} = scale;
  const steps = Array.from({length: 9}, (_, index) => cssColour(low + (high - low) * index / 8, scale, dark, lift));
  return `linear-gradient(to right, ${steps.join(', ')})`;
};
