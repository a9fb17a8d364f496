// Draws arrays into canvases of one point per cell. An image is painted once for its colours; charts then only scale it.
const WIDEST = 4096; // cells of one canvas; browsers refuse much larger ones

export const canvas = (width, height) => {
  const made = document.createElement('canvas');
  made.width = width;
  made.height = height;
  return made;
};

// Returns the image [rows, columns] that begins at a place of the codes, as canvases side by side.
export const tiles = (codes, colours, rows, columns, up) => {
  const made = [];
  for (let first = 0; first < columns; first += WIDEST) {
    const width = Math.min(WIDEST, columns - first);
    const part = canvas(width, rows);
    const pen = part.getContext('2d');
    const image = pen.createImageData(width, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let row = 0; row < rows; row += 1) {
      const from = (up ? rows - 1 - row : row) * columns + first;
      for (let column = 0; column < width; column += 1) pixels[row * width + column] = colours[codes[from + column]];
    }
    pen.putImageData(image, 0, 0);
    made.push({first, part});
  }
  return made;
};

// A small copy of an image: each point has the most telling of its cells, so that thin lines are not lost.
export const small = (codes, colours, rows, columns, up, most, none, diverging) => {
  const [high, wide] = [Math.min(rows, most), Math.min(columns, most)];
  const made = canvas(wide, high);
  const pen = made.getContext('2d');
  const image = pen.createImageData(wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const middle = (none - 1) / 2;
  for (let y = 0; y < high; y += 1) {
    const [top, bottom] = [Math.floor(y * rows / high), Math.max(Math.floor((y + 1) * rows / high), Math.floor(y * rows / high) + 1)];
    for (let x = 0; x < wide; x += 1) {
      const [left, right] = [Math.floor(x * columns / wide), Math.max(Math.floor((x + 1) * columns / wide), Math.floor(x * columns / wide) + 1)];
      let [found, weight] = [none, -1];
      for (let row = top; row < bottom; row += 1) {
        for (let column = left; column < right; column += 1) {
          const code = codes[row * columns + column];
          const worth = code === none ? -1 : diverging ? Math.abs(code - middle) : code;
          if (worth > weight) { found = code; weight = worth; }
        }
      }
      pixels[(up ? high - 1 - y : y) * wide + x] = colours[found];
    }
  }
  pen.putImageData(image, 0, 0);
  return made;
};

// Makes a canvas as sharp as the screen and returns its pen, which draws in points of the page.
export const fitted = (target, width, height) => {
  const density = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * density), Math.round(height * density)];
  if (target.width !== wide || target.height !== high) Object.assign(target, {width: wide, height: high});
  Object.assign(target.style, {width: `${width}px`, height: `${height}px`});
  const pen = target.getContext('2d');
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
};

// Steps of 1, 2 or 5 for about so many ticks between two numbers; one tick alone would show no distance.
export const ticks = (low, high, about) => {
  const rough = (high - low) / Math.max(about, 1) || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const steps = [10, 5, 2, 1, 0.5].map((each) => each * size);
  let found = [];
  for (const step of steps.slice(steps.findLastIndex((each) => each >= rough * 0.999))) {
    found = [];
    for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) found.push(place * step);
    if (found.length > 1 || about < 2) break;
  }
  return found;
};

// As much of a text as fits, with an ellipsis.
export const shortened = (pen, text, room) => {
  if (pen.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length && pen.measureText(`${letters.join('')}…`).width > room) letters.pop();
  return letters.length ? `${letters.join('')}…` : '';
};

// The same for the name of a cell. The name of a stage loses its begin, as its end tells it apart.
export const ending = (pen, text, room) => {
  const parts = text.split('.');
  let said = text;
  while (parts.length > 2 && pen.measureText(said).width > room) {
    parts.shift();
    said = `…${parts.join('.')}`;
  }
  return shortened(pen, said, room);
};
