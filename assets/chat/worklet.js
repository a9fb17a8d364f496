// The audio thread: plays the samples that it gets without gaps, and records the microphone.
const FADE = 64; // samples; long enough that a start or stop makes no audible click
const REPORT_INTERVAL = 8; // in blocks of 128 samples

class SpeechPlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.parts = [];
    this.offset = 0; // of the next sample in the first part
    this.waitingSamples = 0; // samples that are not yet played
    this.played = 0;
    this.missed = 0; // samples of silence because no samples had arrived
    this.isPlaying = false;
    this.gain = 0; // from 0 to 1; fades the sound in and out
    this.isComplete = false; // no more samples will arrive
    this.isStopping = false;
    this.blocks = 0;
    this.port.onmessage = ({data}) => {
      if (data.samples) {
        this.parts.push(data.samples);
        this.waitingSamples += data.samples.length;
      }
      if (data.play) this.isPlaying = true;
      if (data.isComplete) this.isComplete = true;
      if (data.stop) this.isStopping = true;
    };
  }

  next() {
    while (this.parts.length && this.offset >= this.parts[0].length) {
      this.parts.shift();
      this.offset = 0;
    }
    this.waitingSamples -= 1;
    this.played += 1;
    return this.parts[0][this.offset++] / 32768;
  }

  process(inputs, [[output]]) {
    let isStarved = false;
    for (let index = 0; index < output.length; index += 1) {
      const isShort = this.waitingSamples <= FADE && !this.isComplete;
      if (this.isPlaying && !this.isStopping && !isShort) this.gain = Math.min(1, this.gain + 1 / FADE);
      else this.gain = Math.max(0, this.gain - 1 / FADE);
      if (this.isPlaying && this.waitingSamples > 0 && (this.gain > 0 || !isShort)) {
        output[index] = this.next() * this.gain;
      } else {
        output[index] = 0;
        if (this.isPlaying && !this.isComplete && !this.isStopping) {
          this.missed += 1;
          isStarved = true;
        }
      }
    }
    const isOver = (this.isComplete && this.waitingSamples === 0 && this.isPlaying) || (this.isStopping && this.gain === 0);
    if (isStarved) this.isPlaying = false; // until the page has buffered enough samples
    this.blocks += 1;
    if (isOver || isStarved || this.blocks % REPORT_INTERVAL === 0) {
      this.port.postMessage({played: this.played, missed: this.missed, isStarved, isOver, waitingSamples: this.waitingSamples});
    }
    return !isOver;
  }
}

class Recorder extends AudioWorkletProcessor {
  process([[input]]) {
    if (input) this.port.postMessage(input.slice());
    return true;
  }
}

registerProcessor('speech-player', SpeechPlayer);
registerProcessor('recorder', Recorder);
