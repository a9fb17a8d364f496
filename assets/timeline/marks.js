// Marks over the pictures: the cursor, the selected stretch, and on the map the stretch in view. They have canvases of their
// own. An element that moves would make the browser lay out or layer the whole page again in each frame.
import {themed} from '../../visualise/scripts/colours.js';
import {fit} from './pane.js';

const HEAD = 5; // pixels: half of the cursor's head

export class Marks {
  constructor(canvas) {
    Object.assign(this, {canvas, context: canvas.getContext('2d')});
  }

  recolour(element) {
    this.ink = {cursor: themed(element, '--error'), stretch: themed(element, '--primary-500')};
  }

  // `width` and `height` are in CSS pixels.
  resize(width, height, sharp) {
    Object.assign(this, {width, height});
    fit(this.canvas, width, height, sharp);
    this.context.setTransform(sharp, 0, 0, sharp, 0, 0);
  }

  // Shows a stretch [from, to] and a cursor, both in CSS pixels; null means none.
  show(stretch, cursor, border = 1) {
    const {canvas, context, width, height} = this;
    const seen = [stretch && stretch[1] >= 0 && stretch[0] <= width, cursor !== null && cursor >= 0 && cursor <= width];
    if (canvas.hidden === seen.includes(true)) canvas.hidden = !canvas.hidden;
    if (canvas.hidden) return;
    context.clearRect(0, 0, width, height);
    if (seen[0]) this.stretch(...stretch, border);
    if (seen[1]) this.cursor(cursor);
  }

  stretch(from, to, border) {
    const {context, height} = this;
    const [left, right] = [Math.max(from, -border), Math.min(to, this.width + border)];
    context.fillStyle = this.ink.stretch;
    context.globalAlpha = 0.18;
    context.fillRect(left, 0, right - left, height);
    context.globalAlpha = 1;
    context.fillRect(left, 0, border, height);
    context.fillRect(right - border, 0, border, height);
  }

  cursor(x) {
    const {context, height} = this;
    context.fillStyle = this.ink.cursor;
    context.fillRect(x - 1, 0, 2, height);
    context.beginPath();
    context.moveTo(x - HEAD, 0);
    context.lineTo(x + HEAD, 0);
    context.lineTo(x, HEAD);
    context.fill();
  }
}
