// Plays the recording or its selection, once or in a loop, and moves the cursor with the sound.
export class Player {
  constructor(link) {
    Object.assign(this, {link, rate: 16000, samples: new Int16Array(0), context: null, node: null, level: 0});
  }

  // Takes a recording as the server sends it: its rate as uint32, then int16 samples.
  load(buffer) {
    this.rate = new DataView(buffer).getUint32(0, true);
    this.samples = new Int16Array(buffer, 4);
  }

  // Must be called while a press is handled: before a first press, browsers play no sound.
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
    const start = link.cursor < link.seconds - 0.01 ? link.cursor : 0;
    const [from, to] = link.stretch || [start, link.seconds];
    const offset = link.stretch && link.cursor > from && link.cursor < to - 0.01 ? link.cursor : from;
    const node = this.context.createBufferSource();
    node.buffer = this.buffer;
    node.connect(this.meter).connect(this.context.destination);
    if (link.loop) Object.assign(node, {loop: true, loopStart: from, loopEnd: to});
    node.start(0, offset, link.loop ? undefined : to - offset);
    const startTime = this.context.currentTime;
    this.node = node;
    link.set({playing: true});
    const follow = () => {
      if (this.node !== node) return;
      const played = this.context.currentTime - startTime;
      if (!link.loop && offset + played >= to) { this.stop(); link.go(offset); return; }
      link.go(link.loop ? from + ((offset - from + played) % (to - from)) : offset + played);
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

  // Measures the peak amplitude of what plays now.
  measure() {
    this.wave ||= new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(this.wave);
    this.level = this.wave.reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 0);
  }

  close() {
    this.stop();
    this.context?.close().catch(() => {});
  }
}
