// Fetches tiles of a recording's pictures and keeps the ones used last. It fetches the latest request first, so that the
// current view does not wait for views that the user has left.
const AT_ONCE = 6;
const KEPT = 600;
const AGAIN = 1000; // milliseconds until a tile that could not be fetched is requested again

export class Tiles {
  // `arrived` is called when there is something new to draw.
  constructor(address, arrived) {
    Object.assign(this, {address, arrived, kept: new Map(), waiting: new Map(), fetched: new Set(), finished: false, version: 0});
  }

  // Returns the values of a tile, or null while they are fetched. `from` is the path of the tile; `read` turns its bytes
  // into values.
  get(from, read) {
    const found = this.kept.get(from);
    if (found) {
      this.kept.delete(from);
      this.kept.set(from, found);
    }
    if (!this.fresh(from) && !this.fetched.has(from)) {
      this.waiting.delete(from);
      this.waiting.set(from, read);
      this.next();
    }
    return found ? found.value : null;
  }

  // Returns the values of a tile that has arrived, else null.
  peek(from) { return this.kept.get(from)?.value ?? null; }

  // Returns whether a tile has arrived and nothing new is known of it.
  fresh(from) {
    const found = this.kept.get(from);
    return Boolean(found) && (found.finished || found.version === this.version);
  }

  // Call it when more of the recording is known: then earlier tiles are requested again when they are drawn.
  renew(finished) {
    this.version += 1;
    this.finished = finished;
  }

  async next() {
    while (this.fetched.size < AT_ONCE && this.waiting.size) {
      const [from, read] = [...this.waiting].at(-1);
      this.waiting.delete(from);
      if (this.waiting.size > 60) this.waiting.delete(this.waiting.keys().next().value);
      this.fetched.add(from);
      this.fetch(from, read).finally(() => { this.fetched.delete(from); this.next(); });
    }
  }

  async fetch(from, read) {
    const {finished, version} = this;
    try {
      const answer = await fetch(new URL(from, this.address));
      if (!answer.ok) return;
      this.kept.set(from, {value: read(await answer.arrayBuffer()), finished, version});
      while (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
      this.arrived();
    } catch (error) { // the server is away for a moment
      setTimeout(this.arrived, AGAIN);
    }
  }
}
