// Plays the recording, or the selected stretch of it once or again and again, and moves the cursor with the sound.
export class Player {
  constructor(link) {
    Object.assign(this, {link, rate: 16000, samples: new Int16Array(0), context: null, node: null, level: 0});
  }

  // Takes a recording as the server sends it: its rate as uint32, then int16 samples.
  load(buffer) {
    this.rate = new DataView(buffer).getUint32(0, true);
    this.samples = new Int16Array(buffer, 4);
  }

  // Must be called when a user presses something: browsers let no sound out before.
  async play() {
    const {link} = this;
    this.stop();
    this.context ||= new AudioContext({latencyHint: 'interactive'});
    this.meter ||= this.context.createAnalyser();
    await this.context.resume();
    if (!this.buffer) {
      this.buffer = this.context.createBuffer(1, Math.max(this.samples.length, 1), this.rate);
      this.buffer.copyToChannel(Float32Array.from(this.samples, (value) => value / 32768), 0);
    }
    const rest = link.cursor < link.seconds - 0.01 ? link.cursor : 0;
    const [from, to] = link.stretch || [rest, link.seconds];
    const begun = link.stretch && link.cursor > from && link.cursor < to - 0.01 ? link.cursor : from;
    const node = this.context.createBufferSource();
    node.buffer = this.buffer;
    node.connect(this.meter).connect(this.context.destination);
    if (link.loop) Object.assign(node, {loop: true, loopStart: from, loopEnd: to});
    node.start(0, begun, link.loop ? undefined : to - begun);
    const start = this.context.currentTime;
    this.node = node;
    link.set({playing: true});
    const follow = () => {
      if (this.node !== node) return;
      const played = this.context.currentTime - start;
      if (!link.loop && begun + played >= to) { this.stop(); link.go(begun); return; }
      link.go(link.loop ? from + ((begun - from + played) % (to - from)) : begun + played);
      this.measure();
      requestAnimationFrame(follow);
    };
    requestAnimationFrame(follow);
  }

  stop() {
    const {node} = this;
    this.node = null;
    if (!node) return;
    node.stop();
    node.disconnect();
    this.link.set({playing: false});
  }

  toggle() {
    if (this.node) this.stop();
    else this.play();
  }

  // The greatest amplitude that is heard now.
  measure() {
    this.wave ||= new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(this.wave);
    this.level = this.wave.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  close() {
    this.stop();
    this.context?.close().catch(() => {});
  }
}
