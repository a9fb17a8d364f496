// Sound in and out: speech that plays while it is generated, and recordings of the microphone.
// One thing plays at a time. It draws nothing.
import {place} from './wire.js';

// Speech of which more may come: what was said, or what is being generated.
export class Speech {
  constructor(rate, samples = new Int16Array(0), done = true) {
    this.rate = rate;
    this.parts = samples.length ? [samples] : [];
    this.length = samples.length;
    this.done = done;
    this.pace = null; // seconds of audio that are made in a second
    this.gap = 0; // seconds that the last part took
    this.more = () => {};
  }

  get seconds() { return this.length / this.rate; }

  add(samples, pace, gap) {
    this.pace = pace;
    this.gap = gap;
    this.parts.push(samples);
    this.length += samples.length;
    this.more(samples);
  }

  end() {
    this.done = true;
    this.more(null);
  }

  // All samples from a place on, as one array.
  from(start = 0) {
    if (this.parts.length > 1) {
      const whole = new Int16Array(this.length);
      let at = 0;
      for (const part of this.parts) { whole.set(part, at); at += part.length; }
      this.parts = [whole];
    }
    return this.parts.length ? this.parts[0].slice(start) : new Int16Array(0);
  }
}

// How many seconds must wait before it starts, so that it does not run dry: the whole lead where speech is made more
// slowly than it is spoken, and a part's length in any case.
export const lead = (speech, dry) => {
  const pace = speech.pace || 0;
  const steady = Math.max(0.12, 1.3 * speech.gap) * 2 ** dry;
  if (pace >= 1.05) return steady;
  const expected = Math.min(30, Math.max(5, 1.6 * speech.seconds));
  return Math.max(steady, (1.05 - pace) * expected);
};

const AHEAD = 0.03; // seconds from now to the first of the scheduled parts

// Plays without AudioWorklet, which browsers give to secure pages only: parts scheduled one after another.
class Scheduled {
  constructor(context, out, report) {
    Object.assign(this, {context, out, report, pending: [], running: [], at: 0, total: 0, missed: 0, going: false, whole: false});
    this.timer = setInterval(() => this.tell(), 60);
  }

  send({samples, go, whole, stop}) {
    if (samples) this.pending.push(samples);
    if (go) this.going = true;
    if (whole) this.whole = true;
    if (stop) { this.running.forEach((node) => node.stop()); this.end(); return; }
    if (this.going) this.pending.splice(0).forEach((part) => this.schedule(part));
  }

  schedule(part) {
    const now = this.context.currentTime;
    if (this.at < now) { // the first part, or one that comes too late
      if (this.total) this.missed += Math.round((now + AHEAD - this.at) * this.context.sampleRate);
      this.at = now + AHEAD;
    }
    const buffer = this.context.createBuffer(1, part.length, this.context.sampleRate);
    buffer.copyToChannel(Float32Array.from(part, (value) => value / 32768), 0);
    const node = this.context.createBufferSource();
    node.buffer = buffer;
    node.connect(this.out);
    node.start(this.at);
    this.at += buffer.duration;
    this.total += part.length;
    this.running.push(node);
  }

  tell() {
    if (!this.going) return;
    const left = Math.max(0, this.at - this.context.currentTime);
    const played = Math.max(0, Math.round(this.total - left * this.context.sampleRate));
    const starved = !this.whole && left === 0;
    if (starved) this.going = false; // until enough is there again
    const over = this.whole && left === 0;
    this.report({played, missed: this.missed, starved, over});
    if (over) this.end();
  }

  end() { clearInterval(this.timer); }
}

class Engine {
  constructor() {
    this.context = null;
    this.now = null; // what plays: {speech, start, played, holding, tell}
    this.watchers = new Set();
  }

  // Must be called when a user presses something: browsers let no sound out before.
  async wake(rate = 16000) {
    if (this.context && this.context.sampleRate !== rate) {
      await this.context.close().catch(() => {});
      this.context = null;
    }
    if (!this.context) {
      this.context = new AudioContext({sampleRate: rate, latencyHint: 'interactive'});
      this.meter = this.context.createAnalyser();
      this.meter.fftSize = 1024;
      this.meter.connect(this.context.destination);
      this.ready = this.context.audioWorklet ? this.context.audioWorklet.addModule(place('scripts/worklet.js')) : null;
    }
    if (this.context.state === 'suspended') this.context.resume().catch(() => {});
    await this.ready;
  }

  // Plays speech from a place on. `tell` is called with the position in samples, and whether it waits or is over.
  async play(speech, start, tell) {
    this.stop();
    const mine = {speech, start, played: 0, holding: true, dry: 0, tell, queue: []};
    this.now = mine;
    const send = (message) => (mine.node ? mine.node(message) : mine.queue.push(message));
    const decide = () => {
      if (!mine.holding) return;
      const ready = speech.length - mine.start - mine.played;
      if (speech.done || ready / speech.rate >= lead(speech, mine.dry)) {
        mine.holding = false;
        send({go: true});
      }
      tell({position: mine.start + mine.played, waiting: mine.holding, over: false});
    };
    speech.more = (samples) => {
      if (this.now !== mine) return;
      if (samples) send({samples: samples.slice()});
      else send({whole: true});
      decide();
    };
    const first = speech.from(start);
    if (first.length) send({samples: first});
    if (speech.done) send({whole: true});
    await this.wake(speech.rate);
    if (this.now !== mine) return;
    const report = ({played, missed, starved, over}) => {
      if (this.now !== mine) return;
      Object.assign(mine, {played, missed});
      if (starved) {
        mine.holding = true;
        mine.dry += 1;
      }
      if (over) this.now = null;
      tell({position: start + played, waiting: mine.holding, over});
      this.watchers.forEach((watch) => watch({played: start + played, missed, level: this.level(), over}));
      if (starved) decide();
    };
    if (this.context.audioWorklet) {
      const node = new AudioWorkletNode(this.context, 'speech-player', {numberOfInputs: 0, outputChannelCount: [1]});
      node.port.onmessage = ({data}) => report(data);
      node.connect(this.meter);
      mine.node = (message) => node.port.postMessage(message);
    } else {
      const scheduled = new Scheduled(this.context, this.meter, report);
      mine.node = (message) => scheduled.send(message);
    }
    mine.queue.splice(0).forEach((message) => mine.node(message));
    decide();
  }

  stop() {
    const mine = this.now;
    if (!mine) return;
    this.now = null;
    if (mine.node) mine.node({stop: true});
    mine.tell({position: mine.start + mine.played, waiting: false, over: true, stopped: true});
    this.watchers.forEach((watch) => watch({played: mine.start + mine.played, level: 0, over: true}));
  }

  // Root mean square of what goes out right now.
  level() {
    const values = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(values);
    return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
  }
}

export const engine = new Engine();

export const noMicrophone = () =>
  (navigator.mediaDevices && window.AudioWorkletNode ? ''
    : 'The browser gives the microphone only to pages on https:// or localhost; drop a recording instead.');

// A recording of the microphone. `heard` is called with the level of each block, from 0 to 1.
export class Recording {
  constructor(heard) {
    this.heard = heard;
    this.parts = [];
    this.length = 0;
  }

  async start() {
    this.stream = await navigator.mediaDevices.getUserMedia({audio: {channelCount: 1, echoCancellation: true}});
    try {
      this.context = new AudioContext({sampleRate: 16000});
      this.input = this.context.createMediaStreamSource(this.stream);
    } catch {  // a browser that does not resample a microphone
      this.context = new AudioContext();
      this.input = this.context.createMediaStreamSource(this.stream);
    }
    await this.context.audioWorklet.addModule(place('scripts/worklet.js'));
    const node = new AudioWorkletNode(this.context, 'recorder', {numberOfOutputs: 0});
    node.port.onmessage = ({data}) => {
      this.parts.push(Int16Array.from(data, (value) => Math.max(-32768, Math.min(32767, Math.round(value * 32768)))));
      this.length += data.length;
      this.heard(Math.min(1, 3 * Math.sqrt(data.reduce((sum, value) => sum + value * value, 0) / data.length)));
    };
    this.input.connect(node);
  }

  get seconds() { return this.context ? this.length / this.context.sampleRate : 0; }

  // Ends the recording and returns it.
  async stop() {
    this.stream?.getTracks().forEach((track) => track.stop());
    const rate = this.context?.sampleRate || 16000;
    await this.context?.close().catch(() => {});
    const samples = new Int16Array(this.length);
    let at = 0;
    for (const part of this.parts) { samples.set(part, at); at += part.length; }
    return {rate, samples};
  }
}

// A WAV file of 16-bit samples.
export const wavFile = ({rate, samples}) => {
  const head = new DataView(new ArrayBuffer(44));
  const word = (at, letters) => [...letters].forEach((letter, index) => head.setUint8(at + index, letter.charCodeAt(0)));
  word(0, 'RIFF'); word(8, 'WAVE'); word(12, 'fmt '); word(36, 'data');
  head.setUint32(4, 36 + samples.byteLength, true);
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, rate, true);
  head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  head.setUint32(40, samples.byteLength, true);
  return new Blob([head, samples], {type: 'audio/wav'});
};
