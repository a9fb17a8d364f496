// Small helpers for drawing. Text is only ever set as text content, never as HTML.
export const make = (tag, attributes = {}, ...content) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...content.filter((each) => each !== null && each !== undefined && each !== ''));
  return element;
};

const PATHS = {
  send: 'M12 20V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  mic: 'M12 3a3 3 0 0 1 3 3v6a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM5 11a7 7 0 0 0 14 0M12 18v3',
  talk: 'M4 10v4M8 7v10M12 3v18M16 7v10M20 10v4',
  clip: 'M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8L9.5 17a1.7 1.7 0 0 1-2.4-2.4L15 7',
  play: 'M8 5v14l11-7z',
  pause: 'M8 5v14M16 5v14',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  retry: 'M20 11a8 8 0 1 0-2.3 6.2M20 5v6h-6',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  trash: 'M5 7h14M10 11v6M14 11v6M6 7l1 13h10l1-13M9 7V4h6v3',
  save: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  look: 'M4 6h3M4 12h3M4 18h3M10 6h4M10 12h10M10 18h7M17 6h3',
  about: 'M12 11v6M12 7v.5M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z',
  more: 'M5 12h.01M12 12h.01M19 12h.01',
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  check: 'M5 13l4 4L19 7',
  menu: 'M4 7h16M4 12h16M4 17h10',
  tune: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4',
};

export const icon = (name) => {
  const namespace = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(namespace, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.classList.add('icon', `icon-${name}`);
  const path = document.createElementNS(namespace, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
};

// Returns a button with an icon; `label` is its name for screen readers and its tooltip.
export const iconButton = (name, label, onPress, classes = '') =>
  make('button', {type: 'button', class: `tool ${classes}`, 'aria-label': label, title: label, onclick: onPress}, icon(name));

export const textButton = (label, onPress, classes = 'quiet', name = '') =>
  make('button', {type: 'button', class: classes, onclick: onPress}, name ? icon(name) : null, label);

// Returns seconds as the rest of the page writes them: three significant digits, from 100 s on minutes and seconds.
export const seconds = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (value < 9.995) return `${value.toFixed(2)} s`;
  if (value < 99.95) return `${value.toFixed(1)} s`;
  return `${Math.floor(Math.round(value) / 60)} min ${String(Math.round(value) % 60).padStart(2, '0')} s`;
};

// Returns the beginning of a text; it never splits a character of two code units.
export const beginning = (text, length) => [...text].slice(0, length).join('');

export const clock = (value) => {
  const total = Math.max(0, Math.floor(value));
  return `${Math.floor(total / 60)}:${String(total % 60).padStart(2, '0')}`;
};

export const saveFile = (name, blob) => {
  const address = URL.createObjectURL(blob);
  const link = make('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
};

export const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page over http, not https, has no clipboard
    const area = make('textarea', {});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
};

// Returns the value of a CSS variable, to draw on a canvas in the colours of the theme.
export const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim() || '#888';

let isPrinting = false;
addEventListener('beforeprint', () => { isPrinting = true; });
addEventListener('afterprint', () => { isPrinting = false; });

// Returns a function that draws, but not for paper: Chromium prints a canvas that is drawn then without most of its
// picture. So the picture of the screen is printed, scaled by assets/print.css.
export const onScreen = (draw) => () => { if (!isPrinting) draw(); };

// Draws when an element has another size on the screen.
export const observeSize = (element, draw) => new ResizeObserver(onScreen(draw)).observe(element);
