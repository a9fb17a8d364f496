// The state that all pictures share: the range of time in view, the cursor, the pointer, the selection. It calls its
// watchers with the names of the changed fields, at most once per animation frame. It draws nothing.
const MIN_SECONDS = 0.05; // seconds in view at least

export class Link {
  constructor(seconds, minSeconds = MIN_SECONDS) {
    Object.assign(this, {
      seconds, // of the recording
      minSeconds,
      from: 0, to: seconds, // in view
      cursor: 0,
      stretch: null, // [from, to] of the selection, in seconds
      token: null, // {side, index}
      peak: null, // seconds: where the token's attention is greatest
      hover: null, // {layer, time, x, y}: the cell under the pointer
      head: null, // index of the enlarged image of a grid
      lift: 0, // strength of faint values, from 0 to 1
      playing: false, loop: false,
    });
    this.watchers = new Set();
    this.changedNames = new Set();
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (this[name] === value) continue;
      this[name] = value;
      this.changedNames.add(name);
    }
    if (this.changedNames.size && !this.isNotifyScheduled) {
      this.isNotifyScheduled = true;
      requestAnimationFrame(() => this.notifyWatchers());
    }
  }

  notifyWatchers() {
    const {changedNames} = this;
    this.changedNames = new Set();
    this.isNotifyScheduled = false;
    for (const watcher of this.watchers) watcher(changedNames);
  }

  clamp(time) { return Math.min(Math.max(time, 0), this.seconds); }

  // Sets the range of time in view.
  show(from, to) {
    const duration = Math.min(Math.max(to - from, this.minSeconds), this.seconds);
    const begin = Math.min(Math.max(from, 0), this.seconds - duration);
    this.set({from: begin, to: begin + duration});
  }

  zoom(factor, time = this.cursor) {
    const centre = time >= this.from && time <= this.to ? time : (this.from + this.to) / 2;
    this.show(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  pan(seconds) { this.show(this.from + seconds, this.to + seconds); }

  // Moves the cursor, and the range in view so that it contains the cursor.
  go(time) {
    const cursor = this.clamp(time);
    this.set({cursor});
    const duration = this.to - this.from;
    if (cursor < this.from) this.show(cursor - 0.1 * duration, cursor + 0.9 * duration);
    if (cursor > this.to) this.show(cursor - 0.1 * duration, cursor + 0.9 * duration);
  }

  select(from, to) {
    const ends = [this.clamp(Math.min(from, to)), this.clamp(Math.max(from, to))];
    this.set({stretch: ends[1] > ends[0] ? ends : null});
  }
}
