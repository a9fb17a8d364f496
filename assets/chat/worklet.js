// The audio thread: plays samples that are sent to it without gaps, and records the microphone.
const FADE = 64; // samples; shorter than a click is audible, longer than one is
const REPORT = 8; // blocks of 128 samples between two reports

class SpeechPlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.parts = [];
    this.at = 0; // in the first part
    this.waiting = 0; // samples that wait to be played
    this.played = 0;
    this.missed = 0; // samples of silence because nothing was there in time
    this.going = false;
    this.level = 0; // what fades in and out
    this.whole = false; // no more samples will come
    this.stopping = false;
    this.blocks = 0;
    this.port.onmessage = ({data}) => {
      if (data.samples) {
        this.parts.push(data.samples);
        this.waiting += data.samples.length;
      }
      if (data.go) this.going = true;
      if (data.whole) this.whole = true;
      if (data.stop) this.stopping = true;
    };
  }

  next() {
    while (this.parts.length && this.at >= this.parts[0].length) {
      this.parts.shift();
      this.at = 0;
    }
    this.waiting -= 1;
    this.played += 1;
    return this.parts[0][this.at++] / 32768;
  }

  process(inputs, [[out]]) {
    let starved = false;
    for (let index = 0; index < out.length; index += 1) {
      const short = this.waiting <= FADE && !this.whole;
      if (this.going && !this.stopping && !short) this.level = Math.min(1, this.level + 1 / FADE);
      else this.level = Math.max(0, this.level - 1 / FADE);
      if (this.going && this.waiting > 0 && (this.level > 0 || !short)) {
        out[index] = this.next() * this.level;
      } else {
        out[index] = 0;
        if (this.going && !this.whole && !this.stopping) {
          this.missed += 1;
          starved = true;
        }
      }
    }
    const over = (this.whole && this.waiting === 0 && this.going) || (this.stopping && this.level === 0);
    if (starved) this.going = false; // until the page says that enough is there again
    this.blocks += 1;
    if (over || starved || this.blocks % REPORT === 0) {
      this.port.postMessage({played: this.played, missed: this.missed, starved, over, waiting: this.waiting});
    }
    return !over;
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
