// Playback of speech, also while it is generated, and recordings of the microphone.
// One sound plays at a time. This file draws nothing.
import {chatUrl} from './wire.js';

// Speech that is complete, or that is being generated and grows. `onSamples` gets new samples, and null at the end.
export class Speech {
  constructor(rate, samples = new Int16Array(0), isComplete = true) {
    this.rate = rate;
    this.parts = samples.length ? [samples] : [];
    this.length = samples.length;
    this.isComplete = isComplete;
    this.pace = null; // seconds of audio that the model generates in a second
    this.partSeconds = 0; // seconds between the last two parts
    this.onSamples = () => {};
  }

  get seconds() { return this.length / this.rate; }

  add(samples, pace, partSeconds) {
    this.pace = pace;
    this.partSeconds = partSeconds;
    this.parts.push(samples);
    this.length += samples.length;
    this.onSamples(samples);
  }

  end() {
    this.isComplete = true;
    this.onSamples(null);
  }

  // Returns all samples from `start` on, as one array.
  samplesFrom(start = 0) {
    if (this.parts.length > 1) {
      const samples = new Int16Array(this.length);
      let offset = 0;
      for (const part of this.parts) { samples.set(part, offset); offset += part.length; }
      this.parts = [samples];
    }
    return this.parts.length ? this.parts[0].slice(start) : new Int16Array(0);
  }
}

// Returns how many seconds of audio must be buffered before playback starts, so that it does not starve: at least a
// part, and more where the model generates speech more slowly than real time. `starvations` counts earlier gaps.
export const leadSeconds = (speech, starvations) => {
  const pace = speech.pace || 0;
  const minimumLead = Math.max(0.12, 1.3 * speech.partSeconds) * 2 ** starvations;
  if (pace >= 1.05) return minimumLead;
  const expectedSeconds = Math.min(30, Math.max(5, 1.6 * speech.seconds));
  return Math.max(minimumLead, (1.05 - pace) * expectedSeconds);
};

const SCHEDULE_DELAY = 0.03; // seconds from now to the start of the first part

// Schedules parts one after another, for pages without AudioWorklet, which browsers give to secure pages only.
class ScheduledPlayer {
  constructor(context, destination, report) {
    Object.assign(this, {context, destination, report, pendingParts: [], nodes: [], nextTime: 0, scheduledSamples: 0, missed: 0, isPlaying: false, isComplete: false});
    this.timer = setInterval(() => this.reportState(), 60);
  }

  send({samples, play, isComplete, stop}) {
    if (samples) this.pendingParts.push(samples);
    if (play) this.isPlaying = true;
    if (isComplete) this.isComplete = true;
    if (stop) { this.nodes.forEach((node) => node.stop()); this.end(); return; }
    if (this.isPlaying) this.pendingParts.splice(0).forEach((part) => this.schedule(part));
  }

  schedule(part) {
    const now = this.context.currentTime;
    if (this.nextTime < now) { // the first part, or a part that arrives too late
      if (this.scheduledSamples) this.missed += Math.round((now + SCHEDULE_DELAY - this.nextTime) * this.context.sampleRate);
      this.nextTime = now + SCHEDULE_DELAY;
    }
    const buffer = this.context.createBuffer(1, part.length, this.context.sampleRate);
    buffer.copyToChannel(Float32Array.from(part, (value) => value / 32768), 0);
    const node = this.context.createBufferSource();
    node.buffer = buffer;
    node.connect(this.destination);
    node.start(this.nextTime);
    this.nextTime += buffer.duration;
    this.scheduledSamples += part.length;
    this.nodes.push(node);
  }

  reportState() {
    if (!this.isPlaying) return;
    const remainingSeconds = Math.max(0, this.nextTime - this.context.currentTime);
    const played = Math.max(0, Math.round(this.scheduledSamples - remainingSeconds * this.context.sampleRate));
    const isStarved = !this.isComplete && remainingSeconds === 0;
    if (isStarved) this.isPlaying = false; // until enough samples are buffered again
    const isOver = this.isComplete && remainingSeconds === 0;
    this.report({played, missed: this.missed, isStarved, isOver});
    if (isOver) this.end();
  }

  end() { clearInterval(this.timer); }
}

class Engine {
  constructor() {
    this.context = null;
    this.playback = null; // {speech, start, played, isWaiting, onPosition, ...}, or null when nothing plays
    this.watchers = new Set();
  }

  // Must be called while a press is handled: before a first press, browsers play no sound.
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
      this.workletLoading = this.context.audioWorklet ? this.context.audioWorklet.addModule(chatUrl('scripts/worklet.js')) : null;
    }
    // It is suspended before the first press; on a phone, a call interrupts it.
    if (this.context.state !== 'running') this.context.resume().catch(() => {});
    await this.workletLoading;
  }

  // Plays speech from sample `start` on. `onPosition` gets {position in samples, isWaiting, isOver, isStopped}.
  async play(speech, start, onPosition) {
    this.stop();
    const playback = {speech, start, played: 0, isWaiting: true, starvations: 0, onPosition, queue: []};
    this.playback = playback;
    const send = (message) => (playback.deliver ? playback.deliver(message) : playback.queue.push(message));
    const startWhenReady = () => {
      if (!playback.isWaiting) return;
      const availableSamples = speech.length - playback.start - playback.played;
      if (speech.isComplete || availableSamples / speech.rate >= leadSeconds(speech, playback.starvations)) {
        playback.isWaiting = false;
        send({play: true});
      }
      onPosition({position: playback.start + playback.played, isWaiting: playback.isWaiting, isOver: false});
    };
    speech.onSamples = (samples) => {
      if (this.playback !== playback) return;
      if (samples) send({samples: samples.slice()});
      else send({isComplete: true});
      startWhenReady();
    };
    const firstSamples = speech.samplesFrom(start);
    if (firstSamples.length) send({samples: firstSamples});
    if (speech.isComplete) send({isComplete: true});
    await this.wake(speech.rate);
    if (this.playback !== playback) return;
    const report = ({played, missed, isStarved, isOver}) => {
      if (this.playback !== playback) return;
      Object.assign(playback, {played, missed});
      if (isStarved) {
        playback.isWaiting = true;
        playback.starvations += 1;
      }
      if (isOver) this.playback = null;
      onPosition({position: start + played, isWaiting: playback.isWaiting, isOver});
      this.watchers.forEach((watcher) => watcher({played: start + played, missed, level: this.level(), isOver}));
      if (isStarved) startWhenReady();
    };
    if (this.context.audioWorklet) {
      const node = new AudioWorkletNode(this.context, 'speech-player', {numberOfInputs: 0, outputChannelCount: [1]});
      node.port.onmessage = ({data}) => report(data);
      node.connect(this.meter);
      playback.deliver = (message) => node.port.postMessage(message);
    } else {
      const player = new ScheduledPlayer(this.context, this.meter, report);
      playback.deliver = (message) => player.send(message);
    }
    playback.queue.splice(0).forEach((message) => playback.deliver(message));
    startWhenReady();
  }

  stop() {
    const playback = this.playback;
    if (!playback) return;
    this.playback = null;
    if (playback.deliver) playback.deliver({stop: true});
    playback.onPosition({position: playback.start + playback.played, isWaiting: false, isOver: true, isStopped: true});
    this.watchers.forEach((watcher) => watcher({played: playback.start + playback.played, level: 0, isOver: true}));
  }

  // Returns the root mean square of the sound that plays now.
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

// A recording of the microphone. `onLevel` gets the level of each block, from 0 to 1.
export class Recording {
  constructor(onLevel) {
    this.onLevel = onLevel;
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
    await this.context.audioWorklet.addModule(chatUrl('scripts/worklet.js'));
    const node = new AudioWorkletNode(this.context, 'recorder', {numberOfOutputs: 0});
    node.port.onmessage = ({data}) => {
      this.parts.push(Int16Array.from(data, (value) => Math.max(-32768, Math.min(32767, Math.round(value * 32768)))));
      this.length += data.length;
      this.onLevel(Math.min(1, 3 * Math.sqrt(data.reduce((sum, value) => sum + value * value, 0) / data.length)));
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
    let offset = 0;
    for (const part of this.parts) { samples.set(part, offset); offset += part.length; }
    return {rate, samples};
  }
}

// Returns a WAV file of 16-bit samples.
export const wavFile = ({rate, samples}) => {
  const header = new DataView(new ArrayBuffer(44));
  const writeText = (offset, letters) => [...letters].forEach((letter, index) => header.setUint8(offset + index, letter.charCodeAt(0)));
  writeText(0, 'RIFF'); writeText(8, 'WAVE'); writeText(12, 'fmt '); writeText(36, 'data');
  header.setUint32(4, 36 + samples.byteLength, true);
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, rate, true);
  header.setUint32(28, 2 * rate, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  header.setUint32(40, samples.byteLength, true);
  return new Blob([header, samples], {type: 'audio/wav'});
};
