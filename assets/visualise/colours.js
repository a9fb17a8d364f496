// Colours of values, by lookup: a table has the colour of every code of an array. Colours follow light and dark.
const SHADES = {light: ['#ffffff', '#d6ecea', '#90cdca', '#46a5a3', '#0e6e70', '#0a484b'],
  dark: ['#17211e', '#0a484b', '#0e6e70', '#46a5a3', '#addad7', '#eef7f6']};
const SIGNED = {light: ['#0b4f8a', '#3f8fd2', '#b9d7ef', '#ffffff', '#f3cfab', '#e08a3c', '#8f4a10'],
  dark: ['#9fd0ff', '#3f8fd2', '#1f4260', '#17211e', '#5c3c1e', '#e08a3c', '#ffd2a3']};
export const LINES = ['#3f8fd2', '#e08a3c', '#5d9a3a', '#9a5bb0', '#c0504d', '#1f8786', '#b7791f', '#7a8490'];

export const isDark = (element) => Boolean(element.closest('.dark') || document.body.classList.contains('dark'));

// The value of a variable of the style sheets.
export const themed = (element, name) => getComputedStyle(element).getPropertyValue(name).trim() || '#888';

// The colours of a scale from low to high, as hexadecimal text.
export const stops = (scale, dark) => {
  const mode = dark ? 'dark' : 'light';
  const colours = scale.diverging ? SIGNED[mode] : SHADES[mode];
  if (scale.map !== 'pale') return colours;
  return scale.diverging ? colours.slice(1, -1) : colours.slice(0, 3);
};

const channels = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));

const between = (colours, share) => {
  const place = share * (colours.length - 1);
  const first = Math.min(Math.floor(place), colours.length - 2);
  return colours[first].map((channel, index) => Math.round(channel + (place - first) * (colours[first + 1][index] - channel)));
};

// Where a value stands between the ends of its scale, from 0 to 1; `lift` above 0 makes faint values stronger.
export const share = (value, scale, lift) => {
  const range = scale.high - scale.low || 1;
  const plain = Math.min(Math.max((value - scale.low) / range, 0), 1);
  const power = 1 - 0.8 * lift;
  if (!scale.diverging) return plain ** power;
  const signed = 2 * plain - 1;
  return (1 + Math.sign(signed) * Math.abs(signed) ** power) / 2;
};

// The colour of each code as a 32-bit pixel, for arrays of codes.
export const table = (values, scale, dark, lift) => {
  const colours = stops(scale, dark).map(channels);
  const shades = Array.from({length: 256}, (_, level) => {
    const [red, green, blue] = between(colours, level / 255);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
  const made = new Uint32Array(values.none + 1);
  for (let code = 0; code < values.none; code += 1) {
    made[code] = shades[Math.round(255 * share(values.value(code), scale, lift))];
  }
  return made; // a value that is not a number stays clear
};

// The colour of one value as a rule of a style sheet.
export const css = (value, scale, dark, lift = 0) => {
  if (!Number.isFinite(value)) return 'transparent';
  return `rgb(${between(stops(scale, dark).map(channels), share(value, scale, lift)).join(' ')})`;
};

// The colours of a scale from left to right.
export const gradient = (scale, dark, lift) => {
  const {low, high} = scale;
  const shown = Array.from({length: 9}, (_, place) => css(low + (high - low) * place / 8, scale, dark, lift));
  return `linear-gradient(to right, ${shown.join(', ')})`;
};
