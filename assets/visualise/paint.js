// Paints arrays on canvases of one pixel per cell. An image is painted once for its colours; charts then only scale it.
const MAX_WIDTH = 4096; // cells of one canvas; browsers refuse much larger ones

export const makeCanvas = (width, height) => {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  return canvas;
};

// Returns an image [rows, columns] as canvases side by side: {first: the first column, tile: the canvas} of each.
export const tiles = (codes, colours, rows, columns, isUpward) => {
  const parts = [];
  for (let first = 0; first < columns; first += MAX_WIDTH) {
    const width = Math.min(MAX_WIDTH, columns - first);
    const tile = makeCanvas(width, rows);
    const pen = tile.getContext('2d');
    const image = pen.createImageData(width, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let row = 0; row < rows; row += 1) {
      const offset = (isUpward ? rows - 1 - row : row) * columns + first;
      for (let column = 0; column < width; column += 1) pixels[row * width + column] = colours[codes[offset + column]];
    }
    pen.putImageData(image, 0, 0);
    parts.push({first, tile});
  }
  return parts;
};

// Returns a small copy of an image. Each pixel has the strongest of its cells, so that thin lines stay visible.
export const shrink = (codes, colours, rows, columns, isUpward, maxSize, missingCode, isDiverging) => {
  const [height, width] = [Math.min(rows, maxSize), Math.min(columns, maxSize)];
  const canvas = makeCanvas(width, height);
  const pen = canvas.getContext('2d');
  const image = pen.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const middle = (missingCode - 1) / 2;
  for (let y = 0; y < height; y += 1) {
    const [top, bottom] = [Math.floor(y * rows / height), Math.max(Math.floor((y + 1) * rows / height), Math.floor(y * rows / height) + 1)];
    for (let x = 0; x < width; x += 1) {
      const [left, right] = [Math.floor(x * columns / width), Math.max(Math.floor((x + 1) * columns / width), Math.floor(x * columns / width) + 1)];
      let [bestCode, bestWeight] = [missingCode, -1];
      for (let row = top; row < bottom; row += 1) {
        for (let column = left; column < right; column += 1) {
          const code = codes[row * columns + column];
          const weight = code === missingCode ? -1 : isDiverging ? Math.abs(code - middle) : code;
          if (weight > bestWeight) { bestCode = code; bestWeight = weight; }
        }
      }
      pixels[(isUpward ? height - 1 - y : y) * width + x] = colours[bestCode];
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
};

// Returns how many times its usual size the browser shows text. Canvases draw in pixels, so they have to ask.
export const textScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

// Gives a canvas the resolution of the screen and returns its 2D context, which draws in CSS pixels.
export const fitCanvas = (target, width, height) => {
  const density = window.devicePixelRatio || 1;
  const [pixelWidth, pixelHeight] = [Math.round(width * density), Math.round(height * density)];
  if (target.width !== pixelWidth || target.height !== pixelHeight) Object.assign(target, {width: pixelWidth, height: pixelHeight});
  Object.assign(target.style, {width: `${width}px`, height: `${height}px`});
  const pen = target.getContext('2d');
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
};

// Returns the multiples of a step of 1, 2 or 5 (times a power of ten) between two numbers, about `count` of them. There are
// at least two where `count` is two or more, because one tick shows no distance.
export const ticks = (low, high, count) => {
  const idealStep = (high - low) / Math.max(count, 1) || 1;
  const magnitude = 10 ** Math.floor(Math.log10(idealStep));
  const steps = [10, 5, 2, 1, 0.5].map((each) => each * magnitude);
  let positions = [];
  for (const step of steps.slice(steps.findLastIndex((each) => each >= idealStep * 0.999))) {
    positions = [];
    for (let multiple = Math.ceil(low / step - 1e-9); multiple * step <= high + step * 1e-9; multiple += 1) positions.push(multiple * step);
    if (positions.length > 1 || count < 2) break;
  }
  return positions;
};

// Returns as much of the start of a text as fits, with an ellipsis.
export const shortenEnd = (pen, text, maxWidth) => {
  if (pen.measureText(text).width <= maxWidth) return text;
  const letters = [...text];
  while (letters.length && pen.measureText(`${letters.join('')}…`).width > maxWidth) letters.pop();
  return letters.length ? `${letters.join('')}…` : '';
};

// The same for the name of a cell. The name of a stage loses its first parts, because the last parts identify it.
export const shortenStart = (pen, text, maxWidth) => {
  const parts = text.split('.');
  let shortText = text;
  while (parts.length > 2 && pen.measureText(shortText).width > maxWidth) {
    parts.shift();
    shortText = `…${parts.join('.')}`;
  }
  return shortenEnd(pen, shortText, maxWidth);
};
