// The audio thread: collects 100 ms of the microphone and sends them as int16.
class LiveRecorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.chunk = new Int16Array(Math.round(sampleRate / 10));
    this.offset = 0;
  }

  process([[input]]) {
    if (!input) return true;
    for (const value of input) {
      this.chunk[this.offset++] = Math.max(-32768, Math.min(32767, Math.round(value * 32768)));
      if (this.offset === this.chunk.length) {
        this.port.postMessage(this.chunk.slice());
        this.offset = 0;
      }
    }
    return true;
  }
}

registerProcessor('live-recorder', LiveRecorder);
