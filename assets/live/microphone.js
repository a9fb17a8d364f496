// The microphone and its connection to the server: sends 100 ms of sound at a time, receives events. It draws nothing.
export const serverUrl = (path) => new URL(path, document.baseURI);

// Returns why the page has no microphone and how to get one; empty where it has one.
export const noMicrophone = () => {
  if (navigator.mediaDevices && window.AudioWorkletNode) return '';
  if (!window.isSecureContext) {
    return 'The browser gives the microphone only to secure pages. Open this page as http://localhost on the machine that runs it '
      + '(from another one: ssh -L 7860:localhost:7860 that-machine), or serve it by https.';
  }
  return 'This browser gives no microphone to pages; try another one, or record a file.';
};

const MAX_WAITING = 64; // chunks that may wait to be sent, about six seconds; with more, the server is behind
const LOST = 'The browser lost the microphone: it was unplugged, or this page may no longer use it.';

// `onSamples` gets each chunk and its level from 0 to 1. `onEvent` gets each event of the server, {type: 'closed'} once after a
// connection, and {type: 'lost'} if the microphone ends by itself.
export class Microphone {
  // With `echo`, the browser removes the sound of the page from the recording (echo cancellation).
  constructor({request, onSamples, onEvent, echo = false}) {
    Object.assign(this, {request, onSamples, onEvent, echo, isPaused: false, isStopped: false, isBehind: false, sent: 0});
  }

  // Resolves when samples are sent, or when the recording was stopped before.
  async start() {
    try {
      await this.open();
    } catch (error) {
      if (!this.isStopped) throw error;
    }
    if (this.isStopped) await this.cancel(); // what was opened after the stop, such as a microphone that was allowed late
  }

  async open() {
    const processing = {echoCancellation: this.echo, noiseSuppression: false, autoGainControl: false}; // models were trained without it
    this.stream = await navigator.mediaDevices.getUserMedia({audio: {channelCount: 1, ...processing}});
    if (this.isStopped) return;
    this.stream.getAudioTracks().forEach((track) => { track.onended = () => this.onEvent({type: 'lost', sentence: LOST}); });
    try {
      this.context = new AudioContext({sampleRate: 16000});
      this.input = this.context.createMediaStreamSource(this.stream);
    } catch { // a browser that does not resample a microphone
      this.context = new AudioContext();
      this.input = this.context.createMediaStreamSource(this.stream);
    }
    await this.context.audioWorklet.addModule(serverUrl('live/scripts/worklet.js'));
    if (this.isStopped) return;
    await this.connect();
    if (this.isStopped) return;
    const node = new AudioWorkletNode(this.context, 'live-recorder', {numberOfOutputs: 0});
    node.port.onmessage = ({data}) => this.sendSamples(data);
    this.input.connect(node);
  }

  get isOpen() { return this.socket?.readyState === WebSocket.OPEN; }

  get rate() { return this.context.sampleRate; }

  connect() {
    const address = serverUrl('live/listen');
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    this.socket = new WebSocket(address);
    return new Promise((resolve, reject) => {
      this.socket.onclose = () => reject(new Error('The server cannot be reached. Is it still running?'));
      this.socket.onopen = () => {
        this.socket.onclose = () => this.onEvent({type: 'closed'});
        this.socket.send(JSON.stringify({...this.request, rate: Math.round(this.rate)}));
        resolve();
      };
      this.socket.onmessage = ({data}) => this.onEvent(JSON.parse(data));
    });
  }

  sendSamples(samples) {
    if (this.isPaused) return;
    this.onSamples(samples, Math.min(1, 3 * Math.sqrt(samples.reduce((sum, value) => sum + (value / 32768) ** 2, 0) / samples.length)));
    if (!this.isOpen) return;
    this.isBehind = this.socket.bufferedAmount > MAX_WAITING * samples.byteLength;
    this.socket.send(samples);
    this.sent += samples.length;
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.stream.getAudioTracks().forEach((track) => { track.enabled = !isPaused; });
    if (isPaused && this.isOpen) this.socket.send('{"type": "commit"}');
  }

  // Ends the recording; the server then sends the last final texts and the event `end`.
  async stop() {
    this.isStopped = this.isPaused = true;
    this.stream?.getTracks().forEach((track) => track.stop());
    await this.context?.close().catch(() => {});
    if (this.isOpen) this.socket.send('{"type": "stop"}');
  }

  async cancel() {
    await this.stop();
    this.socket?.close();
  }
}
