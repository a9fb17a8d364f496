// Fetches tiles of a recording's pictures and keeps the ones used last. What was asked for last is fetched first, so that
// the view that is looked at does not wait for those that were passed on the way.
const AT_ONCE = 6;
const KEPT = 600;
const AGAIN = 1000; // milliseconds until a tile that could not be fetched may be asked for again

export class Tiles {
  // `arrived` is called when there is something new to draw.
  constructor(address, arrived) {
    Object.assign(this, {address, arrived, kept: new Map(), waiting: new Map(), fetched: new Set(), finished: false, version: 0});
  }

  // Returns the values of a tile, or null while they are fetched. `from` is the path of the tile, `read` makes of the
  // bytes what is kept.
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

  // Returns a tile only if it is here.
  peek(from) { return this.kept.get(from)?.value ?? null; }

  // Whether a tile is here with all that is known of it.
  fresh(from) {
    const found = this.kept.get(from);
    return Boolean(found) && (found.finished || found.version === this.version);
  }

  // More of the recording is known: tiles that came before are asked for again when they are drawn.
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
