// Paints the lanes: a row for each model with its segments and words, lit while they are spoken, differences marked. It
// also finds what is under a pointer. A lane is {key, title, segments: [[start, end, text]], words: [[start, end, text,
// differs, timed, confidence]], missing: [[time, text]]}.
import {themed} from '../../visualise/scripts/colours.js';

// Pixels while text has its usual size: the line of a lane's name, its segments and words, both.
const NAME = 20;
const ROW = 34;
export const LANE = NAME + ROW;
const BESIDE = 8; // pixels by which a mark may be wider than its time
const OUTSIDE = 16; // pixels before the view
const WIDEST = 4000; // pixels behind it that a word may reach
const AFTERGLOW = 0.5; // seconds that a word stays lit behind its end if no other begins

// The last of the sorted rows that begins at or before a time; -1 if none does.
export const lastBefore = (rows, time) => {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle][0] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
};

// The word that is spoken at a time, else -1.
export const wordAt = (lane, time) => {
  const index = lastBefore(lane.words, time);
  if (index < 0 || !lane.words[index][4]) return -1;
  const [, end] = lane.words[index];
  return time < Math.max(end, Math.min(end + AFTERGLOW, lane.words[index + 1]?.[0] ?? Infinity)) ? index : -1;
};

export const segmentAt = (lane, time) => {
  for (let index = Math.min(lastBefore(lane.segments, time), lane.segments.length - 1); index >= 0; index -= 1) {
    if (time < lane.segments[index][1]) return index;
    if (lane.longest && time - lane.segments[index][0] > lane.longest) break;
  }
  return -1;
};

export class Lanes {
  constructor(element) {
    this.element = element;
    this.list = [];
    this.scale = 1; // of the text
    this.recolour();
  }

  recolour() {
    const names = {line: '--line', muted: '--muted', accent: '--accent', soft: '--accent-soft', ink: '--ink', error: '--error',
      wrong: '--error-soft', surface: '--surface'};
    this.ink = Object.fromEntries(Object.entries(names).map(([name, variable]) => [name, themed(this.element, variable)]));
    this.reading = themed(this.element, '--reading');
  }

  take(list) {
    this.list = list.map((lane) => ({...lane, longest: Math.max(0, ...lane.segments.map(([start, end]) => end - start))}));
  }

  get height() { return this.list.length * LANE * this.scale; }

  // What is lit at a time, as text that changes when something else is.
  litAt(time) { return this.list.map((lane) => `${segmentAt(lane, time)}.${wordAt(lane, time)}`).join(); }

  // Paints columns `left` to `right` of a view.
  paint(context, view, left, right, cursor, active, grabbed) {
    const beside = BESIDE * view.sharp;
    const part = {from: view.time(left - beside), to: view.time(right + beside)};
    context.textBaseline = 'middle';
    context.font = this.font = `${(view.width < 500 ? 13 : 14) * this.scale}px ${this.reading}`;
    this.list.forEach((lane, row) => this.lane(context, lane, view, part, (row * LANE + NAME) * this.scale, cursor, lane.key === active, grabbed));
  }

  // Returns the last column that depends on where the view begins: the label of a word that began earlier stands at the
  // left edge of the view.
  edge(view) {
    const ends = this.list.map((lane) => {
      const index = lastBefore(lane.words, view.time(0));
      return index < 0 ? 0 : view.x(this.wordEnd(lane, index)) * view.sharp;
    });
    return Math.ceil(Math.max(0, ...ends));
  }

  lane(context, lane, view, {from, to}, y, cursor, active, grabbed) {
    const {ink} = this;
    const [top, height] = [y, ROW * this.scale - 6].map((each) => Math.round(each * view.sharp) / view.sharp);
    // Keeps places near the view, because canvases are not exact far outside it.
    const at = (time) => Math.min(Math.max(view.x(time), -OUTSIDE), view.width + WIDEST);
    const thin = 1 / view.sharp;
    const [spoken, said] = [segmentAt(lane, cursor), wordAt(lane, cursor)];
    // Draws the segments, one for each column.
    let index = Math.max(lastBefore(lane.segments, from - lane.longest), 0);
    for (let drawn = -Infinity; index < lane.segments.length && lane.segments[index][0] <= to; index += 1) {
      const [start, end] = lane.segments[index];
      const left = at(start);
      const right = Math.max(at(end), left + thin);
      if (end < from || (right <= drawn && right - left <= thin)) continue;
      drawn = right;
      const lit = index === spoken;
      context.fillStyle = lit ? ink.soft : ink.surface;
      context.fillRect(left, top, right - left, height);
      context.strokeStyle = lit ? ink.accent : ink.line;
      context.lineWidth = 1;
      if (right - left > 3) context.strokeRect(left + 0.5, top + 0.5, right - left - 1, height - 1);
      if (active && right - left > 14) {
        context.fillStyle = ink.accent;
        for (const [edge, side] of [[left, 'start'], [right, 'end']]) {
          const held = grabbed && grabbed.index === index && grabbed.side === side;
          context.fillRect(edge - (held ? 2 : 1), top, held ? 4 : 2, height);
        }
      }
    }
    this.words(context, lane, {from, to}, at, thin, top, height, said);
    context.fillStyle = ink.error;
    let gap = Math.max(lastBefore(lane.missing, from), 0);
    for (let drawn = null; gap < lane.missing.length && lane.missing[gap][0] <= to; gap += 1) {
      const cell = Math.floor(lane.missing[gap][0] / (3 * view.sharp * view.seconds)); // one caret in 3 pixels
      if (cell === drawn) continue;
      drawn = cell;
      const x = at(lane.missing[gap][0]);
      context.beginPath(); // a caret: others have a word here
      context.moveTo(x - 4, top + height + 5);
      context.lineTo(x, top + height - 2);
      context.lineTo(x + 4, top + height + 5);
      context.fill();
    }
  }

  words(context, lane, {from, to}, at, thin, top, height, said) {
    const {ink} = this;
    const first = Math.max(lastBefore(lane.words, from) - 1, 0);
    let [marked, shaded] = [-Infinity, -Infinity];
    for (let index = first; index < lane.words.length && lane.words[index][0] <= to; index += 1) {
      const [start, , text, differs, timed, confidence] = lane.words[index];
      const left = at(start);
      const right = Math.max(at(this.wordEnd(lane, index)), left + thin);
      const lit = index === said;
      if (lit) {
        context.fillStyle = ink.accent;
        context.fillRect(left, top + 1, Math.max(right - left - 1, 2), height - 2);
      } else if (confidence !== null && confidence < 0.9 && right > shaded) {
        shaded = right; // the less sure, the darker
        context.globalAlpha = 0.32 * Math.min(1, (0.9 - confidence) / 0.6);
        context.fillStyle = ink.muted;
        context.fillRect(left, top + 1, Math.max(right - left - 1, thin), height - 2);
        context.globalAlpha = 1;
      }
      if (differs && right > marked) {
        marked = right;
        context.fillStyle = ink.error;
        context.fillRect(left, top + height - 3, Math.max(right - left - 2, thin), 3);
      }
      const room = right - Math.max(left, 0) - 5;
      const shown = room > 10 && this.fitted(context, text, room);
      if (shown) {
        context.fillStyle = lit ? ink.surface : differs ? ink.error : timed ? ink.ink : ink.muted;
        context.fillText(shown, Math.max(left, 0) + 3, top + height / 2);
      }
    }
  }

  // Returns where a word ends: at the next word, or at the end of its segment.
  wordEnd(lane, index) {
    const [start, end] = lane.words[index];
    return Math.min(lane.words[index + 1]?.[0] ?? Infinity, Math.max(this.segmentEnd(lane, start), end));
  }

  segmentEnd(lane, time) {
    const index = segmentAt(lane, time);
    return index < 0 ? -Infinity : lane.segments[index][1];
  }

  // As much of a text as there is room for; nothing if that is less than a letter.
  fitted(context, text, room) {
    if (this.measured !== this.font || this.widths.size > 20000) {
      this.measured = this.font;
      this.widths = new Map();
    }
    let width = this.widths.get(text);
    if (width === undefined) {
      width = context.measureText(text).width;
      this.widths.set(text, width);
    }
    if (width <= room) return text;
    const letters = [...text];
    const kept = Math.floor(letters.length * (room - 8) / width);
    return kept >= 1 ? `${letters.slice(0, kept).join('')}…` : '';
  }

  // The lane, segment and border under a point of the canvas; `near` is how far from a border counts as on it.
  under(x, y, {from, to}, width, active, near) {
    const row = Math.floor(y / (LANE * this.scale));
    const lane = this.list[row];
    if (!lane) return null;
    const time = from + x / width * (to - from);
    const reach = near * (to - from) / width;
    let border = null;
    if (lane.key === active && y - row * LANE * this.scale > NAME * this.scale - 4) {
      const around = [lastBefore(lane.segments, time - reach), lastBefore(lane.segments, time + reach)];
      let best = reach;
      for (let index = Math.max(around[0] - 1, 0); index <= Math.min(around[1] + 1, lane.segments.length - 1); index += 1) {
        ['start', 'end'].forEach((side, column) => {
          const off = Math.abs(lane.segments[index][column] - time);
          if (off <= best) { best = off; border = {index, side, column}; }
        });
      }
    }
    return {lane, row, time, border, segment: segmentAt(lane, time), word: lastBefore(lane.words, time)};
  }
}
