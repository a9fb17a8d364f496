// What all pictures share: the stretch of time in view, the cursor, what is pointed at, what is selected. Pictures are
// told at most once per frame of the screen, and what has changed. It draws nothing.
const SHORTEST = 0.05; // seconds in view, unless a page says otherwise

export class Link {
  constructor(seconds, shortest = SHORTEST) {
    Object.assign(this, {
      seconds, // of the recording
      shortest,
      from: 0, to: seconds, // in view
      cursor: 0,
      stretch: null, // [from, to] that is selected
      token: null, // {side, index}
      peak: null, // seconds: where the token's attention is greatest
      hover: null, // {layer, time, x, y}: cells of a layer that are pointed at
      head: null, // of a grid, which one is enlarged
      lift: 0, // how much stronger faint values are drawn
      playing: false, loop: false,
    });
    this.watchers = new Set();
    this.changed = new Set();
  }

  set(change) {
    for (const [name, value] of Object.entries(change)) {
      if (this[name] === value) continue;
      this[name] = value;
      this.changed.add(name);
    }
    if (this.changed.size && !this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => this.tell());
    }
  }

  tell() {
    const {changed} = this;
    this.changed = new Set();
    this.waiting = false;
    for (const watcher of this.watchers) watcher(changed);
  }

  clamp(time) { return Math.min(Math.max(time, 0), this.seconds); }

  // Brings a stretch of time into view.
  show(from, to) {
    const length = Math.min(Math.max(to - from, this.shortest), this.seconds);
    const begin = Math.min(Math.max(from, 0), this.seconds - length);
    this.set({from: begin, to: begin + length});
  }

  zoom(factor, about = this.cursor) {
    const centre = about >= this.from && about <= this.to ? about : (this.from + this.to) / 2;
    this.show(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  pan(seconds) { this.show(this.from + seconds, this.to + seconds); }

  // Moves the cursor, and the view after it.
  go(time) {
    const cursor = this.clamp(time);
    this.set({cursor});
    const length = this.to - this.from;
    if (cursor < this.from) this.show(cursor - 0.1 * length, cursor + 0.9 * length);
    if (cursor > this.to) this.show(cursor - 0.1 * length, cursor + 0.9 * length);
  }

  select(from, to) {
    const ends = [this.clamp(Math.min(from, to)), this.clamp(Math.max(from, to))];
    this.set({stretch: ends[1] > ends[0] ? ends : null});
  }
}
