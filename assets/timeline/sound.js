// Plays a recording from the server, a stretch once or again and again, and moves the cursor with the sound. The browser
// asks for the part that it plays, so that hours take no memory.
export const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2, 3];

export class Sound {
  constructor(link, failed) {
    this.link = link;
    this.once = null; // [from, to] that is played to its end and no further
    this.audio = new Audio();
    this.audio.preload = 'none';
    this.audio.addEventListener('play', () => { link.set({playing: true}); this.follow(); });
    this.audio.addEventListener('pause', () => link.set({playing: false}));
    this.audio.addEventListener('ended', () => { link.set({playing: false}); link.go(link.seconds); });
    this.audio.addEventListener('error', () => { if (this.audio.getAttribute('src')) failed(this.audio.error); });
    this.audio.addEventListener('timeupdate', () => this.step()); // while the page is out of sight
    document.addEventListener('timeline:sounds', (event) => { if (event.detail !== this) this.pause(); });
  }

  load(address) { this.audio.src = address; }

  get speed() { return this.audio.playbackRate; }

  set speed(value) {
    this.audio.defaultPlaybackRate = value;
    this.audio.playbackRate = value;
  }

  seek(time) {
    this.once = null;
    this.move(time);
  }

  move(time) {
    this.link.go(time);
    if (this.audio.preload === 'none' && this.audio.paused) return; // nothing was played yet: the start will seek
    this.audio.currentTime = this.link.cursor;
  }

  async play() {
    const {link, audio} = this;
    const stretch = link.loop && link.stretch;
    if (stretch && !this.once && (link.cursor < stretch[0] || link.cursor >= stretch[1] - 0.005)) link.go(stretch[0]);
    if (!stretch && link.cursor >= link.seconds - 0.01) link.go(0);
    document.dispatchEvent(new CustomEvent('timeline:sounds', {detail: this}));
    audio.preload = 'auto';
    audio.currentTime = link.cursor;
    try { await audio.play(); } catch (error) { if (error.name !== 'AbortError') throw error; }
  }

  playOnce(from, to) {
    this.once = [from, to];
    this.link.go(from);
    return this.play();
  }

  pause() { this.audio.pause(); }

  toggle() {
    if (this.audio.paused) this.play();
    else this.pause();
  }

  follow() {
    if (this.audio.paused) return;
    this.step();
    requestAnimationFrame(() => this.follow());
  }

  // The cursor is where the sound is; ends of stretches are kept.
  step() {
    const {audio, link} = this;
    if (audio.paused || audio.seeking) return;
    const time = audio.currentTime;
    if (this.once && time >= this.once[1] - 0.005) {
      const [, end] = this.once;
      this.once = null;
      this.pause();
      link.go(end);
      return;
    }
    if (!this.once && link.loop && link.stretch && time >= link.stretch[1] - 0.005) {
      audio.currentTime = link.stretch[0];
      return;
    }
    link.go(time);
  }

  close() {
    this.pause();
    this.audio.removeAttribute('src');
    this.audio.load();
  }
}
